"""The web page of `igos serve`.

`work.py` runs the model, `sessions.py` remembers what each visitor looks at, `view.py` and
`curves.py` say what the page shows, `downloads.py` what can be taken home, and `actions.py`
what each button does: all of that without Gradio. `page.py` lays the page out, `wiring.py` joins
it to the actions, `server.py` serves it and `memory.py` gives back what visitors have used.
"""

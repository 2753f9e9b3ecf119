"""The web page of `igos serve`.

`work.py` runs the model, `sessions.py` remembers what each visitor looks at, `view.py` and
`curves.py` say what the page shows, `downloads.py` what can be taken home: all of that without
Gradio. `page.py` lays the page out and `server.py` serves it; only these two import Gradio.
"""

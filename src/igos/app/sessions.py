"""What each visitor looks at: bounded in number and size, and forgotten when they leave."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from igos.app.work import Answered, Question
from igos.errors import IgosError

MOST_SESSIONS = 32  # a session is a few MB: an image, its baseline, the heatmaps shown


@dataclass(eq=False)
class Session:
    """A visitor's photo and the answers on their page."""

    question: Question | None = None
    shown: Answered | None = None
    compared: tuple[Answered, ...] = ()
    stop: threading.Event = field(default_factory=threading.Event)

    def asked(self) -> Question:
        if self.question is None:
            raise IgosError("no photo yet: drop one, or take the sample")
        return self.question

    def ask(self, question: Question | None) -> None:
        """A new photo; the answers about the old one are forgotten."""
        self.question, self.shown, self.compared = question, None, ()

    def answer(self) -> Answered:
        if self.shown is None:
            raise IgosError("nothing to show yet: press Explain")
        return self.shown

    def wait(self) -> None:
        """A run was asked for and will have its turn; what stopped another does not stop it."""
        self.stop = threading.Event()


class Sessions:
    """The sessions by their keys; of too many, the one unused for longest is forgotten."""

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        self.most = most
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, key: str) -> Session:
        with self._lock:
            session = self._sessions.setdefault(key, Session())
            self._sessions.move_to_end(key)
            while len(self._sessions) > self.most:
                _, oldest = self._sessions.popitem(last=False)
                oldest.stop.set()
        return session

    def forget(self, key: str) -> None:
        with self._lock:
            session = self._sessions.pop(key, None)
        if session is not None:
            session.stop.set()

    def close(self) -> None:
        for key in list(self._sessions):
            self.forget(key)

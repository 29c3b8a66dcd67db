"""Docstrings as prose for a page: paragraphs, code, and equations as MathML.

Browsers draw MathML without a script. Only the TeX that docstrings use is known; an equation with
anything else is shown as it is written.
"""

# ruff: noqa: RUF001 - letters of equations may look like others

import re
from collections.abc import Iterator
from html import escape
from inspect import cleandoc
from typing import NamedTuple


class Span(NamedTuple):
    """A part of a docstring: `text`, `code`, or an `equation` or a `formula` inside of a line.

    `mathml` is the equation for a browser; empty where it has to be shown as TeX.
    """

    kind: str
    text: str
    mathml: str = ""


_SPANS = re.compile(r"\$\$(?P<equation>.+?)\$\$|\$(?P<formula>[^$]+)\$|`(?P<code>[^`]+)`")


def paragraphs(docstring: str) -> list[list[Span]]:
    """Return the paragraphs of a docstring, without its examples.

    >>> [span[:2] for span in paragraphs("Energy $$ s = 1 $$ with `T`")[0]]
    [('text', 'Energy '), ('equation', 's = 1'), ('text', ' with '), ('code', 'T')]
    """
    text = cleandoc(docstring).partition(">>>")[0]
    blocks = [" ".join(block.split()) for block in re.split(r"\n\s*\n", text)]
    return [list(_spans(block)) for block in blocks if block]


def _spans(block: str) -> Iterator[Span]:
    end = 0
    for found in _SPANS.finditer(block):
        if found.start() > end:
            yield Span("text", block[end : found.start()])
        kind = str(found.lastgroup)
        content, end = found[kind].strip(), found.end()
        is_math = kind != "code"
        mathml = as_mathml(content, is_block=kind == "equation") if is_math else None
        yield Span(kind, content, mathml or "")
    if end < len(block):
        yield Span("text", block[end:])


# words in braces are one token, since they keep their blanks
_TOKENS = re.compile(
    r"\\(?:text|operatorname|mathrm)\{[^{}]*\}|\\[a-zA-Z]+|\\.|\d+(?:\.\d+)?|[a-zA-Z]|\S", re.DOTALL
)
_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η",
    "theta": "θ", "lambda": "λ", "mu": "μ", "nu": "ν", "pi": "π", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "phi": "φ", "psi": "ψ", "omega": "ω", "Sigma": "Σ", "Delta": "Δ", "Phi": "Φ",
    "Omega": "Ω", "Gamma": "Γ", "Lambda": "Λ", "ell": "ℓ", "partial": "∂", "nabla": "∇",
    "infty": "∞",
}  # fmt: skip
_OPERATORS = {
    "sum": "∑", "prod": "∏", "in": "∈", "notin": "∉", "circ": "∘", "cdot": "·", "odot": "⊙",
    "ne": "≠", "neq": "≠", "approx": "≈", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥",
    "times": "×", "dots": "…", "ldots": "…", "cdots": "⋯", "lVert": "‖", "rVert": "‖", "|": "‖",
    "lvert": "|", "rvert": "|", "langle": "⟨", "rangle": "⟩", "to": "→", "sim": "∼", "pm": "±",
    "mid": "∣", "top": "⊤", "cup": "∪", "cap": "∩", "setminus": "∖", "{": "{", "}": "}",
    "%": "%", "_": "_", "propto": "∝", "subset": "⊂", "lfloor": "⌊", "rfloor": "⌋",
}  # fmt: skip
_FUNCTIONS = ("max", "min", "log", "exp", "arg", "cos", "sin", "det", "ln", "sup", "inf", "Pr")
_ACCENTS = {"hat": "^", "bar": "¯", "tilde": "~", "vec": "→"}
_SPACES = {"quad": "1em", "qquad": "2em", ",": "0.17em", ";": "0.28em", " ": "0.3em", ":": "0.22em"}
_SIZES = ("left", "right", "big", "Big", "bigl", "bigr", "!", "displaystyle", "limits")
_BELOW = ("sum", "prod", "max", "min", "arg", "sup", "inf")  # whose bounds stand below and above


class _Unknown(Exception):  # noqa: N818 - not an error that anybody sees
    """Something that this reader of TeX does not know."""


def as_mathml(tex: str, *, is_block: bool = False) -> str | None:
    """Return an equation as MathML; None where it cannot be read.

    >>> as_mathml("x_1")
    '<math><msub><mi>x</mi><mn>1</mn></msub></math>'
    """
    try:
        content = _Reader(tex).all()
    except (_Unknown, IndexError, RecursionError):
        return None
    return f'<math display="block">{content}</math>' if is_block else f"<math>{content}</math>"


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tex: str) -> None:
        self._tokens: list[str] = _TOKENS.findall(tex)
        self._at = 0

    def all(self) -> str:
        """Read everything."""
        found = self._row(None)
        if self._at < len(self._tokens):
            raise _Unknown
        return found

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _row(self, end: str | None) -> str:
        """Read up to a closing token, which is passed."""
        found: list[str] = []
        while (token := self._peek()) is not None:
            if token == end:
                self._next()
                return "".join(found)
            if token == "}":
                raise _Unknown
            found.append(self._with_scripts())
        if end is not None:
            raise _Unknown
        return "".join(found)

    def _with_scripts(self) -> str:
        first = self._peek() or ""
        base, scripts = self._atom(), {}
        while (mark := self._peek()) in ("_", "^"):
            self._next()
            scripts[mark] = self._atom()
        if not scripts:
            return base
        over = first.lstrip("\\") in _BELOW
        names = {"_": "munder" if over else "msub", "^": "mover" if over else "msup"}
        both = "munderover" if over else "msubsup"
        name = both if len(scripts) == 2 else names[next(iter(scripts))]
        return f"<{name}>{base}{scripts.get('_', '')}{scripts.get('^', '')}</{name}>"

    def _atom(self) -> str:
        token = self._next()
        if token == "{":
            return f"<mrow>{self._row('}')}</mrow>"
        if token.startswith("\\"):
            return self._command(token[1:])
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{escape(token)}</mi>"
        shown = {"-": "−", "'": "′", "*": "∗"}.get(token, token)
        return f"<mo>{escape(shown)}</mo>"

    def _command(self, name: str) -> str:
        if name in _GREEK:
            return f"<mi>{_GREEK[name]}</mi>"
        if name in _OPERATORS:
            return f"<mo>{escape(_OPERATORS[name])}</mo>"
        if name in _FUNCTIONS:
            return f"<mi>{name}</mi>"
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"></mspace>'
        if name in _SIZES:
            return ""
        if name in _ACCENTS:
            return f'<mover accent="true">{self._atom()}<mo>{_ACCENTS[name]}</mo></mover>'
        if name in ("frac", "tfrac"):
            return f"<mfrac>{self._atom()}{self._atom()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self._atom()}</msqrt>"
        if name.endswith("}"):
            kind, _, words = name[:-1].partition("{")
            shown = escape(words).replace(" ", "\N{NO-BREAK SPACE}")
            return f"<mtext>{shown}</mtext>" if kind == "text" else f"<mi>{shown}</mi>"
        if name in ("mathcal", "mathbf", "boldsymbol"):
            return self._atom()
        raise _Unknown

"""The package speaks the English of its field: how docstrings begin, and what messages avoid."""

import ast
import re
from pathlib import Path

import pytest

import incognita

SOURCE = Path(incognita.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
BEGINNINGS = ("Give", "Gives", "Say", "Says", "Tell", "Tells")
# "There is no file" is plain English, "3 is no method" is not
MESSAGES = re.compile(r"\bcame\b|(?<!There )\b(is|are) no\b|\bwas asked for\b|\bso many\b")


def strings_in_errors(tree: ast.AST) -> list[str]:
    """Texts inside `raise` statements, f-strings included."""
    return [
        text.value
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Raise)
        for text in ast.walk(statement)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_docstrings_begin_with_a_verb_that_readers_expect(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            first = (ast.get_docstring(node) or "").partition(" ")[0]
            assert first not in BEGINNINGS, f"{getattr(node, 'name', path.name)}: {first} …"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_messages_say_what_was_expected(path):
    for text in strings_in_errors(ast.parse(path.read_text())):
        assert not MESSAGES.search(text), text


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_variables_are_named_after_what_they_are(path):
    names = {
        node.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    assert "each" not in names

"""`--options FILE`: options of a command from a TOML file; the command line wins."""

from pathlib import Path
from typing import Annotated, Any

import typer

from incognita.errors import InvalidDataError, unknown_name


def apply_options(context: typer.Context, path: Path | None) -> Path | None:
    """Make the values of a TOML file the defaults of the command."""
    if path is not None:
        from incognita.formats.toml_files import load_toml

        table = load_toml(path, "file with options")
        context.default_map = dict(_default(context, path, *item) for item in table.items())
    return path


def _default(context: typer.Context, path: Path, key: str, value: Any) -> tuple[str, Any]:
    """Return the name of a parameter and its value as the command line would have it."""
    options = _options(context)
    name = key.replace("_", "-")
    if name not in options:
        raise unknown_name(f"option of {context.info_name} in {path}", key, options)
    option = options[name]
    items = value if isinstance(value, list) else [value]
    if option.name == "disclose" and isinstance(value, dict):
        items = [f"{field}={text}" for field, text in value.items()]
    if any(isinstance(item, dict | list) for item in items):
        raise InvalidDataError(f"Expected a value for {key} in {path}, got a table.")
    if getattr(option, "is_flag", False):
        if not isinstance(value, bool):
            raise InvalidDataError(
                f"Expected true or false for {key} in {path}, got {value!r:.80}."
            )
        return option.name, value
    # as text, so that the checks of the command line apply: a limit of 2.5 is no whole number
    texts = [str(item) for item in items]
    return option.name, texts if option.nargs == -1 or option.multiple else ", ".join(texts)


def _options(context: typer.Context) -> dict[str, Any]:
    """Return the parameters of a command by the names that people type, without dashes."""
    own = ("options", "help")
    return {
        spelling.removeprefix("--"): parameter
        for parameter in context.command.params
        for spelling in parameter.opts
        if parameter.name not in own
    }


OptionsFile = Annotated[
    Path | None,
    typer.Option(
        "--options",
        is_eager=True,
        callback=apply_options,
        help="TOML file with options of this command; those of the command line win.",
    ),
]

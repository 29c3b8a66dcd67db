"""Tables that fit a screen: details are left out, or columns continue in a further table.

A column is shown whole or not at all, so that no digit is ever cut.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

NAME_WIDTH = 28  # longer names are folded


@dataclass(frozen=True)
class Column:
    """One column: its title, one cell per row, and what stands above the title.

    Args:
        title: The title.
        cells: One cell per row.
        above: A heading that neighboring columns share, such as the group of their sets.
        justify: Names stand left, numbers right.
        style: The style of the cells.
        max_width: The width from which names are folded; None for numbers, which never are.
    """

    title: str
    cells: Sequence[str | Text]
    above: str = ""
    justify: Literal["left", "right"] = "right"
    style: str = ""
    max_width: int | None = None


def names(title: str, cells: Sequence[str | Text], *, width: int = NAME_WIDTH) -> Column:
    """Return a column of names, which every table repeats."""
    return Column(title, cells, justify="left", max_width=width)


@dataclass(frozen=True)
class Layout:
    """The columns of a table, in units that belong side by side.

    Args:
        names: The columns that every table begins with.
        units: Columns of numbers; a unit is only divided if it is wider than the screen.
        sections: Rows that begin a section.
        padding: Blanks around a cell.
    """

    names: Sequence[Column]
    units: Sequence[Sequence[Column]]
    sections: Collection[int] = ()
    padding: tuple[int, int] = (0, 1)

    @property
    def is_empty(self) -> bool:
        """Whether no number is defined."""
        numbers = [c for unit in self.units for c in unit if c.justify == "right"]
        return not any(str(cell).strip(" -→") for column in numbers for cell in column.cells)

    def fits(self, width: int) -> bool:
        """Whether one table holds every column."""
        return self._fits([column for unit in self.units for column in unit], width)

    def keeps_units(self, width: int) -> bool:
        """Whether no unit has to be divided."""
        return all(self._fits(unit, width) for unit in self.units)

    def keeps_columns(self, width: int) -> bool:
        """Whether every column fits beside the names."""
        return all(self._fits([column], width) for unit in self.units for column in unit)

    def tables(self, width: int) -> list[Table]:
        """Distribute the columns to as few tables as fit."""
        packed: list[list[Column]] = [[]]
        for unit in self.units:
            pieces = [unit] if self._fits(unit, width) else [[column] for column in unit]
            for piece in pieces:
                if packed[-1] and not self._fits([*packed[-1], *piece], width):
                    packed.append([])
                packed[-1].extend(piece)
        return [self._table(columns, width) for columns in packed]

    def _fits(self, columns: Sequence[Column], width: int) -> bool:
        return natural_width(self._table(columns, width)) <= width

    def _table(self, columns: Sequence[Column], width: int) -> Table:
        widest = 2 * width // 3 // len(self.names)  # of a column of names, so that numbers fit
        table = Table(
            box=box.SIMPLE_HEAD,
            header_style="",
            padding=self.padding,
            collapse_padding=True,
            pad_edge=False,
        )
        previous = ""
        for column in (*self.names, *columns):
            above = column.above if column.above != previous else ""
            _add(table, column, above=above, widest=widest)
            previous = column.above
        every = [column.cells for column in (*self.names, *columns)]
        for place, cells in enumerate(zip(*every, strict=True)):
            if place in self.sections:
                table.add_section()
            # brackets in a cell are not markup
            table.add_row(*(Text(c) if isinstance(c, str) else c for c in cells))
        return table


def _add(table: Table, column: Column, *, above: str, widest: int) -> None:
    title = Text.assemble((above, "bold"), "\n" if above else "", column.title)
    table.add_column(
        title,
        justify=column.justify,
        style=column.style,
        no_wrap=column.max_width is None,
        max_width=None if column.max_width is None else min(column.max_width, widest),
        overflow="fold",
    )


def natural_width(table: RenderableType) -> int:
    """Return the width of a table on an endless screen."""
    return Console(width=10_000).measure(table).maximum


def fit(
    build: Callable[[Collection[str]], Layout],
    details: tuple[str, ...],
    width: int,
    *,
    caption: Callable[[Collection[str]], str],
    title: str,
    stacks: bool = False,
) -> Group:
    """Return the tables of a layout, a caption, and a line on what was left out.

    Details are left out in order until one table holds the rest. If none does, as few as possible
    are left out, and columns continue in further tables.

    Args:
        build: Returns the layout without these details.
        details: What may be left out, in words, the least important first.
        width: Columns of the screen.
        caption: Returns the explanation of the table without these details.
        title: What the table is called if it has no defined number.
        stacks: Whether units go below each other before a detail is left out.
    """
    if build(()).is_empty:
        return Group(Text(f"left out: {title}, without any defined value", style="table.caption"))
    choices = [details[:n] for n in range(len(details) + 1)]
    layouts = {left_out: build(left_out) for left_out in choices}
    in_one = [] if stacks else [c for c in choices if layouts[c].fits(width)]
    stacked = [c for c in choices if layouts[c].keeps_units(width)]
    divided = [c for c in choices if layouts[c].keeps_columns(width)]
    left_out = next(iter([*in_one, *stacked, *divided, details]))
    tables = layouts[left_out].tables(width)
    lines = [caption(left_out)]
    if left_out:
        lines.append(f"left out to fit {width} columns: {', '.join(left_out)} (--wide prints all)")
    return Group(*tables, *(Text(line, style="table.caption") for line in lines))

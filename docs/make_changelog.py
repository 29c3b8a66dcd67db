"""Build CHANGELOG.md from the fragments in changes/, the newest first.

python docs/make_changelog.py
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TITLE = """# Changes

One section per fragment in `changes/`, the newest first; built by `make changelog`.
"""


def changelog(fragments: Path) -> str:
    """Return the changelog; a fragment begins with its title, up to a colon or a full stop."""
    sections = []
    for path in sorted(fragments.glob("*.md"), reverse=True):
        title, body = re.split(r"[:.]\s+", path.read_text(), maxsplit=1)
        sections.append(f"## {title}\n\n{body[0].upper()}{body[1:].strip()}\n")
    return "\n".join([TITLE, *sections])


if __name__ == "__main__":
    (ROOT / "CHANGELOG.md").write_text(changelog(ROOT / "changes"))

"""Make the picture of the README from the reports of the demo; needs Debian's chromium.

`make pictures` runs the demo first; `python docs/make_pictures.py demo` takes one that has run.
"""

import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

TARGET = Path(__file__).parent / "pictures" / "report.webp"
PANEL, HEIGHT, GAP = 820, 900, 24  # pixels
# report, section that is shown (none: answer and table), place, height
PANELS = (
    ("classifier", "", (0, 0), HEIGHT),
    ("classifier", "Is a method that is good near also good far?", (1, 0), 490),
    ("detector", "What do the errors look like?", (1, 490), HEIGHT - 490),
)


def picture_of(browser: Browser, report: Path, section: str, height: int) -> Image.Image:
    """Return the top of a report, or of one of its sections, as an image."""
    page = browser.new_page(viewport={"width": PANEL, "height": height}, color_scheme="light")
    page.goto(report.resolve().as_uri())
    if section:
        page.locator("section", has=page.get_by_role("heading", name=section)).evaluate(
            "section => window.scrollTo(0, section.getBoundingClientRect().top + scrollY - 12)"
        )
    return Image.open(BytesIO(page.screenshot()))


def make_picture(demo: Path) -> Image.Image:
    """Return the panels on one canvas."""
    canvas = Image.new("RGB", (2 * PANEL + GAP, HEIGHT), "white")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for name, section, (column, top), height in PANELS:
            panel = picture_of(browser, demo / "reports" / f"{name}.html", section, height)
            canvas.paste(panel, (column * (PANEL + GAP), top))
        browser.close()
    return canvas


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    make_picture(Path(sys.argv[1])).save(TARGET, quality=80, method=6)

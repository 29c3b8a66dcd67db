"""Where numba keeps compiled code: a private folder where no other can be written to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
from pathlib import Path
allowed = os.environ.pop("ALLOWED", "")
os.access = lambda path, mode, **_: bool(allowed) and str(path).endswith(allowed)
if os.environ.pop("NUMBA_IS_THERE", ""):
    import numba
import incognita.kernels
place = os.environ.get("NUMBA_CACHE_DIR", "none")
print(place, oct(Path(place).stat().st_mode & 0o777) if place != "none" else "")
"""


def find_place(temporary: Path, **changes: str) -> list[str]:
    """Import the kernels where nothing may be written but what ends with ALLOWED."""
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    home = temporary / "home"
    home.mkdir(exist_ok=True)
    environment |= {"TMPDIR": str(temporary), "HOME": str(home)} | changes
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def private_folder(temporary: Path) -> Path:
    return temporary / f"incognita-kernels-{os.getuid()}"


def test_where_nothing_can_be_written_the_folder_is_private_and_the_same_again(tmp_path):
    folder = private_folder(tmp_path)
    assert find_place(tmp_path) == [str(folder), "0o700"]
    assert find_place(tmp_path) == [str(folder), "0o700"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", folder.name]


@pytest.mark.parametrize("allowed", ["kernels", "home"])
def test_where_the_source_or_the_home_can_be_written_numba_decides(tmp_path, allowed):
    assert find_place(tmp_path, ALLOWED=allowed) == ["none"]
    assert not private_folder(tmp_path).exists()


def test_a_home_that_is_not_there_is_no_place(tmp_path):
    place, mode = find_place(tmp_path, HOME="/nonexistent", ALLOWED="nonexistent")
    assert (place, mode) == (str(private_folder(tmp_path)), "0o700")


def test_a_place_that_was_chosen_stays(tmp_path):
    chosen = tmp_path / "chosen"
    chosen.mkdir(mode=0o755)
    assert find_place(tmp_path, NUMBA_CACHE_DIR=str(chosen))[0] == str(chosen)


def test_where_numba_has_begun_it_is_too_late(tmp_path):
    assert find_place(tmp_path, NUMBA_IS_THERE="yes", ALLOWED="") == ["none"]


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path):
    planted = private_folder(tmp_path)
    planted.mkdir()
    planted.chmod(0o777)
    place, mode = find_place(tmp_path)
    assert Path(place) != planted
    assert Path(place).parent == tmp_path
    assert mode == "0o700"


def test_a_file_in_the_way_is_not_trusted(tmp_path):
    private_folder(tmp_path).write_text("in the way")
    place, mode = find_place(tmp_path)
    assert Path(place).is_dir()
    assert mode == "0o700"


def test_kernels_compile_into_the_private_folder(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    script = (
        "import os; os.access = lambda *_, **__: False\n"
        "import numpy as np\n"
        "from incognita.metrics.ranking import auroc\n"
        "print(auroc(np.array([0.1, 0.9]), np.array([False, True])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=False,
        env=environment | {"TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "1.0\n")
    assert any(private_folder(tmp_path).rglob("*.nbi"))

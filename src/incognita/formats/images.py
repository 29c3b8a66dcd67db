"""Image files as a data set: loaded one by one on demand, identified by their content."""

import importlib
import io
import os
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from incognita.containers._checks import check_rows, check_unique
from incognita.containers.dataset import Dataset
from incognita.errors import IncognitaError, InvalidDataError, count
from incognita.files import check_regular
from incognita.shapes import Bool, Int, Shaped

MISSING = "missing"
SETTLED = 2.0  # seconds after which a second change can no longer hide behind the same time


class _KnownFile(NamedTuple):
    size: int
    time_ns: int
    content: str


class ContentHashes:
    """The sha256 of files below a folder, kept in one small text file.

    Each line is `sha256 size time_ns path`. The file is replaced as a whole by a rename, so that
    processes may share it; where it cannot be written, nothing is kept.

    Args:
        root: The folder that paths begin at.
        name: Of the set of files; every set has its own file.
        cache_dir: Folder of the text file; None keeps nothing.
    """

    def __init__(self, root: Path, name: str, cache_dir: Path | None) -> None:
        self.root = root
        key = sha256(f"{os.path.realpath(root)}\n{name}".encode()).hexdigest()
        self.path = None if cache_dir is None else cache_dir / f"hashes-{key[:32]}.txt"
        self.known = {} if self.path is None else _load(self.path)
        self.is_changed = False

    def of(self, paths: Sequence[str]) -> list[str]:
        """Return the hash of each file; safe to call from several threads."""
        return [self._of(path) for path in paths]

    def _of(self, path: str) -> str:
        full = os.path.join(self.root, path)  # noqa: PTH118 - a million paths
        try:
            metadata = os.stat(full)  # noqa: PTH116 - a million paths
            if not stat.S_ISREG(metadata.st_mode):  # a pipe would be waited for without end
                return MISSING
            known = self.known.get(path)
            if known and known[:2] == (metadata.st_size, metadata.st_mtime_ns):
                return known.content
            with open(full, "rb") as stream:  # noqa: PTH123 - a million paths
                content = file_digest(stream, "sha256").hexdigest()
        except (OSError, ValueError):  # a name with NUL or half a character
            return MISSING
        if time.time() - metadata.st_mtime > SETTLED and "\n" not in path:
            self.known[path] = _KnownFile(metadata.st_size, metadata.st_mtime_ns, content)
            self.is_changed = True
        return content

    def save(self) -> None:
        """Save the hashes, where there is a cache folder."""
        if self.path is None or not self.is_changed:
            return
        lines = (f"{k.content} {k.size} {k.time_ns} {path}\n" for path, k in self.known.items())
        part = self.path.with_suffix(f".{os.getpid()}.part")
        with suppress(OSError):  # a cache that cannot be written costs time, not correctness
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text("".join(lines), encoding="utf-8", errors="surrogateescape", newline="")
            part.replace(self.path)


def _load(path: Path) -> dict[str, _KnownFile]:
    known = {}
    with suppress(OSError, ValueError):  # absent or broken: the files are read again
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        for line in text.split("\n")[:-1]:
            content, size, time_ns, name = line.split(" ", 3)
            known[name] = _KnownFile(int(size), int(time_ns), content)
    return known


def user_cache_dir() -> Path:
    """The folder for what can be computed again: XDG_CACHE_HOME, by default ~/.cache."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is none
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "incognita"


# what Pillow may open; all of them are decoded in this process
IMAGE_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
READERS = 8  # threads that wait for the disk
FILES_PER_TASK = 256
_JPEG = b"\xff\xd8"  # the start of such a file
_UNCHANGED = 0  # how torchvision calls a JPEG file's own channels


@dataclass(frozen=True, eq=False, repr=False)
class FileDataset:
    """Images in files; `image_ids` are their paths below `root`.

    Any of `IMAGE_FORMATS` becomes RGB as OpenOOD does it: the first frame, transparency
    dropped, and the EXIF orientation ignored. Gray of 16 bits is scaled to 8. A truncated file is
    an error, never half an image.

    Args:
        name: Of the set, in messages.
        root: The folder that the paths begin at.
        image_ids: Relative paths.
        labels: Indices of known classes, or None for unknown images.
        source_classes: The names that their own data set gives them.
        cache_dir: Folder for hashes of files; None reads every file each time.
    """

    name: str
    root: Path
    image_ids: Sequence[str] = field(repr=False)
    labels: Int[np.ndarray, "n"] | None = field(default=None, repr=False)
    source_classes: Sequence[str] | None = field(default=None, repr=False)
    cache_dir: Path | None = None

    def __post_init__(self) -> None:
        lengths = {
            "labels": None if self.labels is None else len(self.labels),
            "source_classes": None if self.source_classes is None else len(self.source_classes),
        }
        check_rows(f"Images of {self.name}", image_ids=len(self.image_ids), **lengths)
        if len(set(self.image_ids)) < len(self.image_ids):  # much faster on a million paths
            check_unique(self.name, np.asarray(self.image_ids))

    def __len__(self) -> int:
        return len(self.image_ids)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {count(len(self), 'image')} below {self.root})"

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        return load_image(self.root / self.image_ids[index])

    def fingerprint(self) -> str:
        """Hash ids, labels and the content of every file; a missing file counts as missing."""
        digest = sha256()
        for image_id, content in zip(self.image_ids, self._content_hashes(), strict=True):
            digest.update(f"{image_id}\n{content}\n".encode(errors="surrogatepass"))
        labels = None if self.labels is None else self.labels.tolist()
        names = None if self.source_classes is None else list(self.source_classes)
        digest.update(repr((labels, names)).encode())
        return digest.hexdigest()

    def _content_hashes(self) -> list[str]:
        hashes = ContentHashes(self.root, self.name, self.cache_dir)
        ids = self.image_ids
        tasks = [ids[k : k + FILES_PER_TASK] for k in range(0, len(ids), FILES_PER_TASK)]
        with ThreadPoolExecutor(READERS) as pool:
            found = [content for part in pool.map(hashes.of, tasks) for content in part]
        hashes.save()
        return found

    def subset(self, indices: Sequence[int]) -> "FileDataset":
        names = self.source_classes
        return replace(
            self,
            image_ids=tuple(self.image_ids[k] for k in indices),
            labels=None if self.labels is None else self.labels[list(indices)],
            source_classes=None if names is None else tuple(names[k] for k in indices),
        )


def identities(dataset: Dataset) -> frozenset[str]:
    """Return what tells images apart: the real path of a file, or the id of another image.

    A copy that is made of another data set while it is read shows the images of that one.
    """
    if isinstance(source := getattr(dataset, "source", None), Dataset):
        return identities(source)
    if not isinstance(dataset, FileDataset):
        return frozenset(dataset.image_ids)
    return frozenset(real_paths(dataset.root, dataset.image_ids))


def real_paths(root: Path, paths: Iterable[str]) -> list[str]:
    """Resolve the paths of files.

    Links to folders and to files are followed, by one look into each folder.
    """
    paths = list(paths)
    folders = real_folders(root, paths)
    parts = (path.rpartition("/") for path in paths)
    return [folders[parent].path_of(name) for parent, _, name in parts]


def real_folders(root: Path, paths: Iterable[str]) -> dict[str, "RealFolder"]:
    """Resolve the folders of files, by one look into each."""
    parents = {path.rpartition("/")[0] for path in paths}
    return {parent: RealFolder.at(root / parent) for parent in sorted(parents)}


class RealFolder(NamedTuple):
    """Where a folder really is, and the names of the links in it."""

    path: str
    links: frozenset[str]

    @classmethod
    def at(cls, folder: Path) -> "RealFolder":
        try:
            with os.scandir(folder) as entries:
                links = frozenset(entry.name for entry in entries if entry.is_symlink())
        except (OSError, ValueError):  # a name with NUL or half a character
            links = frozenset()
        return cls(os.path.realpath(folder), links)

    def path_of(self, name: str) -> str:
        path = f"{self.path}/{name}"
        return os.path.realpath(path) if name in self.links else path


def load_image(path: Path) -> Shaped[np.ndarray, "height width 3"]:
    """Read an image file as uint8 RGB."""
    decode = _decode_jpeg()
    if decode is not None:
        check_regular(path, "image", advice="put it there")
        # damaged, or not to be read: Pillow says what is wrong with it
        with suppress(RuntimeError, OSError):
            if _is_plain_jpeg(content := _jpeg_content(path)):
                return decode(content)
    with opened_image(path) as image:
        return _rgb(image)


def _jpeg_content(path: Path) -> bytes:
    """Read a JPEG file; of any other file only the start."""
    with path.open("rb") as stream:
        start = stream.read(len(_JPEG))
        return start + stream.read() if start == _JPEG else start


def _is_plain_jpeg(content: bytes) -> bool:
    """Whether a file is JPEG, gray or in three colors, and not too large to be decoded.

    Its first frame header says so: height, width and the number of channels.
    """
    from PIL import Image

    place = 2
    while content[:2] == _JPEG and place + 10 < len(content) and content[place] == 0xFF:
        marker = content[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", content, place + 5)
            limit = Image.MAX_IMAGE_PIXELS
            is_small = limit is None or height * width <= 2 * limit
            return is_small and content[place + 9] in (1, 3)
        place += 2 + int.from_bytes(content[place + 2 : place + 4])
    return False


def _decode_jpeg() -> Callable[[bytes], Shaped[np.ndarray, "height width 3"]] | None:
    """Return torchvision's decoder of JPEG files, if it is there and decodes as Pillow does.

    It takes as little as half the time, because it copies pixels once.
    """
    return _checked_decoder() if "torch" in sys.modules else None


@lru_cache(maxsize=1)
def _checked_decoder() -> Callable[[bytes], Shaped[np.ndarray, "height width 3"]] | None:
    """Compare both decoders on small pictures: their versions of libjpeg may differ."""
    try:
        import torch

        importlib.import_module("torchvision")  # it registers the operation

        # the operation itself: the function around it warns that torchcodec will replace it
        operation = torch.ops.image.decode_jpeg
    except Exception:  # torchvision may be missing, not fit this torch, or have no decoder
        return None

    def decode(content: bytes) -> Shaped[np.ndarray, "height width 3"]:
        numbers = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        levels = operation(numbers, _UNCHANGED).expand(3, -1, -1).permute(1, 2, 0)
        return np.ascontiguousarray(levels.numpy())

    return decode if _decodes_like_pillow(decode) else None


def _decodes_like_pillow(decode: Callable[[bytes], np.ndarray]) -> bool:
    from PIL import Image

    levels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    picture = Image.fromarray(levels).resize((61, 43))
    kinds = [{"subsampling": k, "progressive": p} for k in (0, 1, 2) for p in (False, True)]
    for image, options in [(picture.convert("L"), {}), *((picture, kind) for kind in kinds)]:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=85, **options)
        with Image.open(file) as read:
            expected = np.asarray(read.convert("RGB"))
        if not np.array_equal(decode(file.getvalue()), expected):
            return False
    return True


@contextmanager
def opened_image(path: Path) -> Iterator[Any]:
    """Open an image in one of `IMAGE_FORMATS` with Pillow; whatever fails becomes a sentence."""
    check_regular(path, "image", advice="put it there")
    try:
        with path.open("rb") as stream:
            yield _identified(stream)
    except (IncognitaError, MemoryError):
        raise
    except Exception as error:  # decoders raise anything on broken content
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidDataError(
            f"{path} cannot be read as an image ({reason:.200}); replace the file."
        ) from error


def _identified(stream: BinaryIO) -> Any:
    """Find the format of an image and read its header, as `PIL.Image.open` does.

    Pillow itself would also try formats that run other programs, such as EPS, and would print a
    warning about an image of many pixels, which cannot be caught in a thread.
    """
    from PIL import Image, TiffImagePlugin, WebPImagePlugin  # noqa: F401 - they register formats

    Image.preinit()
    start = stream.read(16)
    for name in IMAGE_FORMATS:
        factory, accept = Image.OPEN[name]
        if accept is not None and accept(start) is True:
            stream.seek(0)
            image = factory(stream, "")
            _check_pixels(image.size, Image.MAX_IMAGE_PIXELS)
            return image
    raise ValueError(f"it is not in one of the formats {', '.join(IMAGE_FORMATS)}")


def _check_pixels(size: tuple[int, int], limit: int | None) -> None:
    width, height = size
    if limit is not None and width * height > 2 * limit:
        raise ValueError(
            f"it has {width:,} x {height:,} pixels, but at most {2 * limit:,} are read"
        )


def _rgb(image: Any) -> Shaped[np.ndarray, "height width 3"]:
    if image.mode in ("I", "F"):
        raise ValueError(f"mode {image.mode} does not define white; save 8 or 16 bits")
    if image.mode.startswith("I;16"):  # Pillow would cut off whatever is above 255
        levels = np.rint(np.asarray(image) / 257).astype(np.uint8)
        return np.repeat(levels[:, :, None], 3, axis=2)
    # it changes no pixel of an RGB copy, but Pillow would warn of it each time
    image.info.pop("transparency", None)
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def are_present(root: Path, paths: Sequence[str]) -> Bool[np.ndarray, "n"]:
    """Return which files exist, by one look into each folder: lists may name a million files."""
    parts = [path.rpartition("/") for path in paths]
    inside = {parent: _names(root / parent) for parent in {parent for parent, _, _ in parts}}
    return np.array([name in inside[parent] for parent, _, name in parts], dtype=bool)


def _names(folder: Path) -> frozenset[str]:
    try:
        entries: Iterable[str] = os.listdir(folder)  # noqa: PTH208 - names only, no paths
    except (OSError, ValueError):  # a name with NUL or half a character
        return frozenset()
    return frozenset(entries)


# the last bytes of a whole file, by its first ones
_ENDS = {b"\xff\xd8": b"\xff\xd9", b"\x89PNG": b"IEND", b"GIF8": b";"}
_TAIL = 4096  # cameras append a little to their files


def image_problem(path: Path, *, deep: bool = False) -> str | None:
    """Return what is wrong with an image file: missing, empty, truncated or unreadable.

    The header is read. A file without the end of its format is decoded, and with `deep` every
    file is: only decoding finds all damage.
    """
    if not path.exists():
        return "is a link to a file that is missing" if path.is_symlink() else "is missing"
    if not path.is_file():
        return "is not a file"
    if not path.stat().st_size:
        return "is empty"
    try:
        with opened_image(path):
            is_whole = _has_end(path)
        if deep or not is_whole:
            load_image(path)
    except (IncognitaError, OSError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        return f"cannot be read as an image ({reason.replace(str(path), 'it')})"
    return None


def _has_end(path: Path) -> bool:
    with path.open("rb") as stream:
        start = stream.read(8)
        stream.seek(max(0, path.stat().st_size - _TAIL))
        tail = stream.read()
    return all(end in tail for first, end in _ENDS.items() if start.startswith(first))

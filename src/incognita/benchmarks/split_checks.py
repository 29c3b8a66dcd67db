"""What keeps built splits from being the published ones, and what a reader should know of them."""

from collections.abc import Sequence

from incognita.benchmarks.splits.assign import ListCheck, Splits


def problems_of(splits: Splits, *, unsized: Sequence[str] = ()) -> list[str]:
    """Say what is missing; without problems the splits are complete.

    Where published counts are met, a list of ids that differs from the published one is no
    problem.

    Args:
        splits: What was built.
        unsized: Images that were left out because nobody knows their size.
    """
    counts = _wrong_counts(splits)
    problems = _base_problems(splits) + _candidate_problems(splits)
    if unsized:
        problems.append(
            f"{len(unsized):,} images are left out because nobody knows their size, such as "
            f"{unsized[0]}; put them into the folder, or list them in sizes.csv"
        )
    if counts or not splits.rules.expected:
        problems += _list_problems(splits, frozenset(unsized))
    if not (problems or counts or sum(splits.counts.values())):
        problems.append(
            f"the rules leave no unknown image of the {len(splits.base.images):,} there are; list "
            f"fewer categories as known or removed, or send the rest to a split"
        )
    return problems + counts


def notes_of(splits: Splits) -> list[str]:
    """Say what is odd about the rules and lists, which changes nothing about completeness."""
    there = set(splits.base.category_names.values())
    rules = splits.rules
    notes = [
        f"{check.name}: {_shown(check.repeated)} more than once; each counts once"
        for check in splits.lists
        if check.repeated
    ]
    notes += [
        f"{_shown(each.image_ids)} on both {each.wins} and {each.loses}; {each.wins} wins"
        for each in splits.conflicts
    ]
    if rules.overruled:
        notes.append(
            f"{', '.join(rules.overruled)}: listed for a split, but known or removed, which wins"
        )
    if absent := [name for name in rules.absent if name not in there]:
        notes.append(f"{', '.join(absent)}: no such category, as the rules expect")
    return notes


def _base_problems(splits: Splits) -> list[str]:
    base, found = splits.rules.base, len(splits.base.images)
    if base is None or found == base.images:
        return []
    if not found:
        return [
            f"{base.file} with {base.images:,} images is missing, published at {base.published}"
        ]
    return [
        f"{splits.base.source} with {found:,} images stands in for {base.file} with "
        f"{base.images:,} images: {base.stand_in}; it is published at {base.published}"
    ]


def _candidate_problems(splits: Splits) -> list[str]:
    listed = splits.rules.candidates.ids()
    if not listed or splits.candidates is not None:
        return []
    return [
        f"{len(listed):,} candidates are listed, but there is no second annotation file to take "
        f"them from; give it"
    ]


def _list_problems(splits: Splits, unsized: frozenset[str]) -> list[str]:
    published = [check for check in splits.lists if check.published is not None]
    empty = [check.name for check in published if not check.given]
    problems = []
    if empty:
        problems.append(
            f"{', '.join(empty)}: empty, so that the published counts cannot be reached; write "
            f"the published ids into a TOML file and give it with --ids"
        )
    problems += [
        f"{check.name}: {check.given:,} ids, but the published list has {check.published:,}"
        for check in published
        if check.given and check.given != check.published
    ]
    lost = ((check.name, _lost(check, splits, unsized)) for check in splits.lists)
    return problems + [f"{name}: {_shown(ids)} in no annotation file" for name, ids in lost if ids]


def _lost(check: ListCheck, splits: Splits, unsized: frozenset[str]) -> list[int | str]:
    """Give the ids that were looked for in vain, and not for another reason."""
    if splits.candidates is None and check.name.startswith("candidates."):
        return []
    return [each for each in check.not_found if each not in unsized]


def _wrong_counts(splits: Splits) -> list[str]:
    pairs = ((split, found, splits.expected(split)) for split, found in splits.counts.items())
    return [
        f"{split}: {found:,} images, but {expected:,} are expected"
        for split, found, expected in pairs
        if expected is not None and found != expected
    ]


def _shown(ids: Sequence[int | str]) -> str:
    """Name a few ids.

    >>> _shown([7]), _shown([7, 8, 9, 10])
    ('id 7', '4 ids (7, 8, 9, …)')
    """
    if len(ids) == 1:
        return f"id {ids[0]}"
    more = ", …" if len(ids) > 3 else ""
    return f"{len(ids):,} ids ({', '.join(map(str, ids[:3]))}{more})"

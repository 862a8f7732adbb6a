"""Checksums place a wrong byte, a missing end and an extra one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import FileState
from engine.loading.integrity import CHUNK_BYTES, FileSums, check_file, sum_file

SIZE = 3 * CHUNK_BYTES + 100
DATA = bytes(range(256)) * (SIZE // 256) + bytes(SIZE % 256)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of three chunks and a bit."""
    path = tmp_path / "file"
    path.write_bytes(DATA)
    return path


@pytest.fixture
def sums(file: Path) -> FileSums:
    """What it should be."""
    return sum_file(file, "file")


def test_a_whole_file_passes_and_reports_its_bytes(file: Path, sums: FileSums) -> None:
    counts: list[int] = []
    assert check_file(file, sums, counts.append).state == FileState.OK
    assert sum(counts) == SIZE


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, SIZE - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found_in_its_chunk(
    file: Path, sums: FileSums, position: int, bit: int
) -> None:
    data = bytearray(DATA)
    data[position] ^= 1 << bit
    file.write_bytes(data)
    check = check_file(file, sums)
    assert check.state == FileState.ALTERED
    ((start, end),) = check.bad_ranges
    assert start <= position <= end
    assert end - start < CHUNK_BYTES
    assert end < SIZE


def test_neighbouring_damage_is_one_range(file: Path, sums: FileSums) -> None:
    data = bytearray(DATA)
    for chunk in (0, 1, 3):
        data[chunk * CHUNK_BYTES] ^= 1
    file.write_bytes(data)
    check = check_file(file, sums)
    assert check.bad_ranges == ((0, 2 * CHUNK_BYTES - 1), (3 * CHUNK_BYTES, SIZE - 1))
    assert f"0 to {2 * CHUNK_BYTES - 1:,}" in check.detail


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, SIZE - 1])
def test_a_cut_off_file_is_truncated_not_altered(file: Path, sums: FileSums, size: int) -> None:
    file.write_bytes(DATA[:size])
    check = check_file(file, sums)
    assert (check.state, check.bad_ranges) == (FileState.TRUNCATED, ())
    assert f"{size:,} of {SIZE:,}" in check.detail


@pytest.mark.parametrize("extra", [1, CHUNK_BYTES * 2])
def test_a_grown_file_is_grown(file: Path, sums: FileSums, extra: int) -> None:
    file.write_bytes(DATA + bytes(extra))
    check = check_file(file, sums)
    assert (check.state, check.bad_ranges) == (FileState.GROWN, ())


def test_damage_before_the_cut_is_named_too(file: Path, sums: FileSums) -> None:
    file.write_bytes(b"\xff" + DATA[1:-1])
    check = check_file(file, sums)
    assert check.state == FileState.TRUNCATED
    assert check.bad_ranges == ((0, CHUNK_BYTES - 1),)


def test_a_missing_and_an_unreadable_file_are_results_not_errors(
    file: Path, sums: FileSums, tmp_path: Path
) -> None:
    file.unlink()
    assert check_file(file, sums).state == FileState.MISSING
    assert check_file(tmp_path, sums).state == FileState.UNREADABLE

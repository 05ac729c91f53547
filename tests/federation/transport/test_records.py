from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import codedfl.federation  # noqa: F401  (before flwr, which it keeps quiet)
from codedfl.federation.transport import Packet
from codedfl.federation.transport.flower._records import NPY, from_records, to_records

names = st.text(min_size=1, max_size=10)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.booleans() | st.text() | st.binary()
dtypes = st.sampled_from([np.float32, np.float64, np.uint64, np.int64])
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))


def npy(array: npt.NDArray[Any], *, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def sent(data: bytes, stype: str = NPY) -> RecordDict:
    array = Array(dtype="float32", shape=(2,), stype=stype, data=data)
    return RecordDict({"arrays": ArrayRecord({"x": array}), "values": ConfigRecord()})


@given(st.dictionaries(names, arrays, max_size=3), st.dictionaries(names, numbers, max_size=4))
def test_a_packet_survives_the_wire(content: dict[str, Any], values: dict[str, Any]) -> None:
    packet = Packet(content, values)
    back = from_records(to_records(packet))
    assert back.digest == packet.digest


def test_lists_survive_the_wire_and_arrays_that_are_not_contiguous() -> None:
    packet = Packet(
        {"x": np.arange(12.0).reshape(3, 4).T[::2]}, {"names": ["a", "b"], "keys": [b"1", b""], "n": [1, 2]}
    )
    assert from_records(to_records(packet)).digest == packet.digest


class Evil:
    loaded = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, ()


def _load() -> None:
    Evil.loaded = True


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(npy(np.array([Evil()], dtype=object), allow_pickle=True), id="an array of objects"),
        pytest.param(pickle.dumps(Evil()), id="a pickle"),
    ],
)
def test_nothing_is_unpickled(data: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        from_records(sent(data))
    assert not Evil.loaded


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not an array",
        npy(np.zeros(100))[:-1],
        npy(np.zeros(100))[:20],
        npy(np.zeros(2)).replace(b"<f8", b"<f9"),
        npy(np.zeros(2)).replace(b"(2,)", b"(-2)"),
    ],
)
def test_a_damaged_array_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        from_records(sent(data))


@given(st.binary(max_size=200) | st.binary(max_size=80).map(lambda tail: npy(np.zeros(3))[:70] + tail))
def test_whatever_an_array_holds_nothing_but_a_value_error_is_raised(data: bytes) -> None:
    try:
        from_records(sent(data))
    except ValueError as error:
        assert "the message has" in str(error)  # noqa: PT017


def test_an_archive_and_an_unknown_serialisation_are_refused() -> None:
    archive = io.BytesIO()
    np.savez(archive, x=np.zeros(2))
    with pytest.raises(ValueError, match="an archive in place of an array"):
        from_records(sent(archive.getvalue()))
    with pytest.raises(ValueError, match="unknown serialisation"):
        from_records(sent(npy(np.zeros(2)), stype="torch.Tensor"))


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"arrays": ArrayRecord()},
        {"arrays": ArrayRecord(), "values": MetricRecord()},
        {"arrays": ConfigRecord(), "values": ConfigRecord()},
        {"arrays": ArrayRecord(), "values": ConfigRecord(), "more": ConfigRecord()},
    ],
)
def test_records_of_other_names_or_types_are_refused(records: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="other names or types"):
        from_records(RecordDict(records))

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.federation.masking._state import DeviceState, SumRecord
from codedfl.federation.masking._terms import MaskingTerms
from tests.federation.masking.support import Play, identity_keys, make_uploads, names

FOUR = names(4)


def finished_play() -> Play:
    private, public = identity_keys(FOUR)
    play = Play(MaskingTerms("ward", FOUR, roster=public), make_uploads(FOUR), private)
    play.run(missing={"upload": FOUR[3:]})
    return play


PLAY = finished_play()
DEVICE = PLAY.states[FOUR[0]].to_bytes()
SERVER = PLAY.server.to_bytes()


@pytest.mark.parametrize(("record", "content"), [(DeviceState, DEVICE), (SumRecord, SERVER)])
def test_a_record_reads_back(record: type[DeviceState] | type[SumRecord], content: bytes) -> None:
    assert record.from_bytes(content).to_bytes() == content
    assert json.loads(content)


@given(content=st.binary(max_size=300))
def test_any_bytes_raise_only_input_errors(content: bytes) -> None:
    with pytest.raises(InputError, match="state of the sum-only upload"):
        DeviceState.from_bytes(content)
    with pytest.raises(InputError, match="state of the sum-only upload"):
        SumRecord.from_bytes(content)


@given(cut=st.integers(0, len(DEVICE) - 1))
def test_a_truncated_record_is_refused(cut: int) -> None:
    with pytest.raises(InputError, match="is damaged"):
        DeviceState.from_bytes(DEVICE[:cut])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FOUR, "x"]), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
def test_any_field_replaced_by_any_json_raises_only_input_errors(data: Any) -> None:
    for record, content in ((DeviceState, DEVICE), (SumRecord, SERVER)):
        fields = json.loads(content)
        field = data.draw(st.sampled_from([*fields, "unknown"]))
        changed = json.dumps({**fields, field: data.draw(JSON)}).encode()
        try:
            again = record.from_bytes(changed)
        except InputError:
            continue
        assert record.from_bytes(again.to_bytes()) == again


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"mask_seed": "AAAA"}, "mask_seed"),
        ({"mask_seed": "not base64!"}, "mask_seed"),
        ({"received": {FOUR[0]: "AAAA"}}, "received.device-0"),
        ({"survivors": ["mallory"]}, "different phases do not fit"),
        ({"survivors": []}, "survivors and signature do not fit"),
        ({"signature": "not base64!"}, "signature"),
        ({"sealed": {}}, "different phases do not fit"),
        ({"digest": ""}, "shares and digest do not fit"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_damaged_field_is_named(change: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError, match=where):
        DeviceState.from_bytes(json.dumps({**json.loads(DEVICE), **change}).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"agreed": [FOUR[3]]},
        {"survivors": list(FOUR[:2])},
        {"signatures": {}},
        {"signatures": dict.fromkeys(FOUR, "")},
    ],
)
def test_signatures_of_the_server_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="survivors and signatures do not fit"):
        SumRecord.from_bytes(json.dumps({**json.loads(SERVER), **change}).encode())


def test_an_error_quotes_no_secret() -> None:
    fields = json.loads(DEVICE)
    secret = fields["self_seed"]
    with pytest.raises(InputError) as caught:
        DeviceState.from_bytes(json.dumps({**fields, "self_seed": secret + "AAAA"}).encode())
    assert secret not in str(caught.value)
    assert caught.value.__suppress_context__

"""What a device and the server remember of a sum-only upload, as JSON with base64."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.federation.masking._participants import SEED_BYTES


def _from_base64(value: object) -> object:
    return b64decode(value, validate=True) if isinstance(value, str) else value


_as_base64 = PlainSerializer(lambda value: b64encode(value).decode(), return_type=str)
Bytes = Annotated[bytes, BeforeValidator(_from_base64), _as_base64]
Seed = Annotated[bytes, Field(min_length=SEED_BYTES, max_length=SEED_BYTES), BeforeValidator(_from_base64), _as_base64]
Key = Annotated[bytes, Field(min_length=32, max_length=32), BeforeValidator(_from_base64), _as_base64]


class Record(BaseModel):
    """Something to remember, which is written to a file and read back."""

    # Values of a damaged record may be secrets, so errors must not quote them.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    def to_bytes(self) -> bytes:
        """Return the record as JSON."""
        return self.model_dump_json().encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read a record back.

        Raises:
            InputError: If the content is damaged.
        """
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"])) or "content"
            raise InputError(
                f"state of the sum-only upload: {shown(where)} is damaged ({shown(first['msg'], limit=120)}); restore the file."
            ) from None


class DeviceState(Record):
    """What a device remembers, secrets included: keep it in a file that only its owner can read.

    Attributes:
        federation: Name of the federation.
        device: Name of the device.
        encryption_key: Private X25519 key to which peers encrypt shares.
        mask_seed: Seed of the private key of the pairwise masks.
        self_seed: Seed of the self mask.
        published: The device's own announced keys: its first reply.
        participants: Announced keys of everybody, as presented by the server; empty before the second phase.
        sealed: Its encrypted shares by receiver: its second reply.
        received: By sender, the shares of its mask seed and self-mask seed; empty before the third phase.
        digest: Digest of what was uploaded.
        survivors: Whom the server named in the fourth phase; empty before.
        signature: Signature over senders and survivors: its fourth reply. Signing again would give another one.
    """

    federation: str
    device: str
    encryption_key: Key = Field(repr=False)
    mask_seed: Seed = Field(repr=False)
    self_seed: Seed = Field(repr=False)
    published: Bytes
    participants: dict[str, Bytes] = {}
    sealed: dict[str, Bytes] = Field(default={}, repr=False)
    received: dict[str, Key] = Field(default={}, repr=False)
    digest: Bytes = Field(default=b"", repr=False)
    survivors: tuple[str, ...] = ()
    signature: Bytes = b""

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        if set(self.sealed) != set(self.participants) or not set(self.survivors) <= set(self.received) <= set(
            self.sealed
        ):
            raise ValueError("the names of different phases do not fit together")
        if bool(self.received) != bool(self.digest):
            raise ValueError("shares and digest do not fit together")
        if self.signature and not self.survivors:
            raise ValueError("survivors and signature do not fit together")
        return self


class SumRecord(Record):
    """What the server remembers, but for the sums themselves; nothing in it is secret from the server.

    Attributes:
        keys: Announced keys by device.
        participants: Whose keys were presented to the devices; empty before.
        shares: Encrypted shares by sender and receiver.
        senders: Whose shares were forwarded; empty before.
        folded: Whose masked upload is in the sums.
        survivors: Whom the server named to the devices; empty before.
        signatures: Signatures over senders and survivors, by device.
        agreed: Whose signatures were presented to the devices; empty before.
        answers: Shares by device that answered and device whose secret they belong to.
    """

    keys: dict[str, Bytes] = {}
    participants: tuple[str, ...] = ()
    shares: dict[str, dict[str, Bytes]] = {}
    senders: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    signatures: dict[str, Bytes] = {}
    agreed: tuple[str, ...] = ()
    answers: dict[str, dict[str, Bytes]] = {}

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        if not set(self.survivors) | set(self.folded) <= set(self.senders) <= set(self.participants) <= set(self.keys):
            raise ValueError("the names of different phases do not fit together")
        if not set(self.agreed) <= set(self.signatures) <= set(self.survivors):
            raise ValueError("survivors and signatures do not fit together")
        return self

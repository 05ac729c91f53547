"""Coded data that several schemes share."""

from __future__ import annotations

from codedfl.identity import identity
from codedfl.training import DevicePlan, PreparedScheme, Scheme, Setting, UploadCost, Uploaded


class SharedUploads:
    """A cache of coded data, so that schemes with the same upload share it."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Uploaded, UploadCost | None]] = {}

    def prepare(self, scheme: Scheme, setting: Setting, plan: DevicePlan) -> PreparedScheme:
        """Prepare a scheme; reuse coded data that stands for all rows under the same code."""
        if scheme.upload is None or not plan.coded_for_all:
            return scheme.prepare(setting, plan=plan)
        code = scheme.depends_on(setting).code
        key = identity((scheme.upload, setting.federation, setting.streams, code, setting.privacy))
        if key not in self._known:
            self._known[key] = scheme.upload.prepare(setting, plan)
        return scheme.prepared(setting, plan, *self._known[key])

"""`manage.py engine_store push|check FINGERPRINT ...`."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.engines import selectors
from apps.engines.sharing import transfer
from apps.engines.sharing.store import configured


class Command(BaseCommand):
    """The store through which hosts share engines (docs/several-hosts.md)."""

    help = "Put this host's engines into the store of INFLIGHT_STORE, or say which are whole there."

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("verb", choices=["push", "check"])
        parser.add_argument("fingerprint", nargs="*", help="of engines; none: every engine of this host")
        parser.add_argument("--json", action="store_true", help="print what was done as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it for each engine and say what came of it."""
        try:
            rows = [self._one(options["verb"], engine) for engine in self._engines(options["fingerprint"])]
        except InflightError as error:
            raise CommandError(f"{error.sentence} {error.remedy}") from error
        if options["json"]:
            self.stdout.write(json.dumps(rows, indent=2))
            return
        for row in rows:
            whole = _("whole in the store") if row["stored"] else _("not whole in the store")
            self.stdout.write(f"{row['fingerprint'][:12]} {row['engine']}: {whole}, {row['sent_bytes']} B")

    def _engines(self, fingerprints: list[str]) -> list[Any]:
        if not fingerprints:
            return [each for each in selectors.engines() if transfer.built_here(each)]
        return [selectors.engine(each) for each in fingerprints]

    def _one(self, verb: str, engine: Any) -> dict[str, Any]:
        store = configured()
        if store is None:
            raise CommandError(_("There is no store: set INFLIGHT_STORE (docs/several-hosts.md)."))
        sent = transfer.push(transfer.local_folder(engine), engine.manifest, store) if verb == "push" else 0
        stored = all(store.has(digest, size) for _name, size, digest in transfer.files_of(engine.manifest))
        return {
            "engine": str(engine),
            "fingerprint": engine.fingerprint,
            "stored": stored,
            "sent_bytes": sent,
        }

"""``manage.py check_contents``: compare the storage with the database, as after a restoration of one of them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from datasets import contents
from datasets.storage import default_storage
from datasets.storage.base import StorageError
from jobs.selectors.contents import keys


class Command(BaseCommand):
    help = "List contents that the database refers to and the storage lacks, and contents that the database lacks."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--delete-unknown", action="store_true", help="delete contents that the database does not know"
        )

    def handle(self, *args: Any, delete_unknown: bool, **options: Any) -> None:
        storage = default_storage()
        try:
            found = contents.compare(storage, keys())
            for name, listed in (("missing", found.missing), ("unknown", found.unknown)):
                for key in listed:
                    self.stdout.write(f"{name} {key}")
            if delete_unknown:
                for key in found.unknown:
                    storage.delete(key)
        except StorageError as error:
            raise CommandError(str(error)) from None
        deleted = ", deleted" if delete_unknown else ""
        self.stdout.write(f"Missing: {len(found.missing)}. Unknown{deleted}: {len(found.unknown)}.")
        if found.missing:
            raise CommandError("Restore the missing contents from the copy of the storage.")

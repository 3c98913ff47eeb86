"""What other apps may listen to."""

from __future__ import annotations

from django.dispatch import Signal

# Sent inside the transaction that deletes a checkpoint, with checkpoint=row. A receiver that still needs it raises
# NotPossibleNow; one that only keeps history about it removes that.
checkpoint_deleting = Signal()

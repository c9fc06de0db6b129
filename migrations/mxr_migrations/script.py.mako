"""${message}.

Revision ${up_revision}, after ${down_revision or "nothing"}.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """One step forward."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """One step back."""
    ${downgrades if downgrades else "pass"}

"""Messages of replicas whose program is held at its exception."""

from runtime.messages import Template as _
from runtime.messages import register

HELD = _("{replica} failed with {exception} and is held for {length}; the quota goes on counting.")
HELD_SEVERAL = _("{replicas} failed and are held; the quota goes on counting.")
RELEASED = _("{replica} is not held any more.")
NOT_HELD = _("No program of this job is held.")
REPLICA_NOT_HELD = _("{name} is not held.")
LENGTH_INVALID = _("Specify a whole number of seconds from 0 to {most}.")
REPLICA_REQUIRED = _("Specify the name of a replica, such as trainer-0.")
HOLD_NEEDS_AGENT = _("A job with an image of its own cannot be held: it runs without the platform's agent.")

register("holds", globals())

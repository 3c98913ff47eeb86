"""The default: one machine, loopback."""

from controlplane.settings.base import *

"""The websocket contract: one envelope, groups, the publisher, the base consumer and the live topics.

schema.py is the only definition of the messages; static/js/realtime/schema.js is exported from it.
May import core. Topics are registered by the apps that own the objects (topics.register).
States: none."""

"""Build profiles, builds (one attempt to make an engine) and engines (built artefacts).

May import core, realtime, accounts, registry, fleet, diagnosis. Workers do the work; services here guard it.
States: states.py (Build, Engine)."""

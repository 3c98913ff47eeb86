"""Backups of one installation: database, secret key, node id, manifests, and the artefacts if asked for.

An archive is a plain tar file. Its last member, `manifest.json`, names every other with size and SHA-256; restoring
believes nothing that it does not name.
"""

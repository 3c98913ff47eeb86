"""Backups of one installation: database, secret key, key of kept secrets, node id, manifests, artefacts if asked for.

An archive is a plain tar file. Its last member, `manifest.json`, names every other with size and SHA-256; restoring
believes nothing that it does not name.
"""

"""The store through which hosts share engines: files by their SHA-256, in a folder that all see or in an S3 bucket.

Nothing in the store is trusted: what an engine consists of is said by its row, and every file is checked against the
hash there before it gets its name.
"""

"""Three homes on one machine stand for three hosts; run by `make hosts`."""

"""Changes and faults on the whole of Inflight with its real Triton, under streams that run all the while.

`rolling` updates a deployment again and again, `upheaval` breaks one part after the other. Both are commands (`make
rolling`, `make chaos`); their short forms are tests of the journey.
"""

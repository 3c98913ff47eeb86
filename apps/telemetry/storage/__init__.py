"""Where figures are kept longer than an hour: steps of 10 s, 1 min, 10 min, 1 h and 8 h in the database.

`models` are the rows, `rollups` collects the open step in the telemetry process, `keeper` is its only writer,
`rows` reads. States: none.
"""

"""Alert rules as data, and what they say about samples: plain Python, without rows, clocks or sockets.

`conditions` are the shapes of a rule's condition, `judge` turns evidence into a verdict (true, false, or cannot say),
`burn` does so for objectives, `lifecycle` turns verdicts over time into moves of one alert, `shipped` are the rules
that every installation begins with."""

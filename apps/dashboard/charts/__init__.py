"""Charts for the first paint, as plain Plotly JSON. static/js/charts/ draws and extends them.

panels.py says what each chart shows, ranges.py over which time, frames.py holds the figures, figure.py the empty
Plotly figure, cards.py puts them together, distributions.py does so for histograms, marks.py for what happened
meanwhile.
A figure carries no colours: traces name tokens, which the browser resolves, so that one figure serves both themes.
A step without a sample, or a value that is null, is a gap.
"""

"""Pages: who may open and do what, status codes, errors, figures, query counts."""

"""Which input of the BLS model becomes which of preprocessing."""

QUERY_INPUTS = {
    "text_input": "QUERY",
    "max_tokens": "REQUEST_OUTPUT_LEN",
    "stop_words": "STOP_WORDS_DICT",
    "end_id": "END_ID",
}

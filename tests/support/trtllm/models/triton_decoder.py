"""Which output of preprocessing becomes which input of the engine."""

ENGINE_INPUTS = {
    "INPUT_ID": "input_ids",
    "REQUEST_INPUT_LEN": "input_lengths",
    "REQUEST_OUTPUT_LEN": "request_output_len",
    "STOP_WORDS_IDS": "stop_words_list",
    "OUT_END_ID": "end_id",
}

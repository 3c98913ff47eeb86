// Written by `manage.py export_realtime_schema` out of apps/realtime/schema.py; a test compares the two.

export const PROTOCOL = 1;

export const MAX_TOPICS = 50;

export const CLOSE = {
  "signedOut": 4401,
  "notAllowed": 4403,
  "tooSlow": 4408,
  "tryLater": 1013
};

export const LIVE_COMMANDS = {
  "subscribe": {
    "required": [
      "topic"
    ],
    "fields": {
      "topic": [
        "string"
      ],
      "offset": [
        "number",
        "null"
      ],
      "since": [
        "number",
        "null"
      ]
    }
  },
  "unsubscribe": {
    "required": [
      "topic"
    ],
    "fields": {
      "topic": [
        "string"
      ]
    }
  },
  "resync": {
    "required": [
      "topic"
    ],
    "fields": {
      "topic": [
        "string"
      ]
    }
  },
  "ping": {
    "required": [
      "at"
    ],
    "fields": {
      "at": [
        "number"
      ]
    }
  }
};

export const CHAT_COMMANDS = {
  "ask": {
    "required": [],
    "fields": {
      "prompt": [
        "string",
        "null"
      ],
      "system_prompt": [
        "string"
      ],
      "params": [
        "object"
      ],
      "regenerate": [
        "string",
        "null"
      ],
      "edit": [
        "string",
        "null"
      ],
      "after": [
        "string",
        "null"
      ]
    }
  },
  "stop": {
    "required": [
      "turn"
    ],
    "fields": {
      "turn": [
        "string"
      ]
    }
  },
  "resume": {
    "required": [
      "turn"
    ],
    "fields": {
      "turn": [
        "string"
      ],
      "from_seq": [
        "number"
      ],
      "from_mark": [
        "number"
      ]
    }
  },
  "show": {
    "required": [
      "turn"
    ],
    "fields": {
      "turn": [
        "string"
      ],
      "here": [
        "boolean"
      ]
    }
  },
  "count": {
    "required": [
      "number"
    ],
    "fields": {
      "number": [
        "number"
      ],
      "prompt": [
        "string"
      ],
      "system_prompt": [
        "string"
      ],
      "after": [
        "string"
      ],
      "with_text": [
        "boolean"
      ]
    }
  },
  "ping": {
    "required": [
      "at"
    ],
    "fields": {
      "at": [
        "number"
      ]
    }
  }
};

export const SERVER_MESSAGES = {
  "hello": {
    "required": [
      "user",
      "server_time"
    ],
    "fields": {
      "protocol": [
        "number"
      ],
      "user": [
        "string"
      ],
      "server_time": [
        "number"
      ]
    }
  },
  "snapshot": {
    "required": [
      "topic",
      "version",
      "data"
    ],
    "fields": {
      "topic": [
        "string"
      ],
      "version": [
        "number"
      ],
      "data": [
        "object"
      ]
    }
  },
  "change": {
    "required": [
      "topic",
      "version",
      "data"
    ],
    "fields": {
      "topic": [
        "string"
      ],
      "version": [
        "number"
      ],
      "data": [
        "object"
      ],
      "rows": [
        "array"
      ]
    }
  },
  "samples": {
    "required": [
      "topic",
      "samples"
    ],
    "fields": {
      "topic": [
        "string"
      ],
      "samples": [
        "array"
      ]
    }
  },
  "log": {
    "required": [
      "topic",
      "text",
      "start",
      "offset"
    ],
    "fields": {
      "topic": [
        "string"
      ],
      "text": [
        "string"
      ],
      "start": [
        "number"
      ],
      "offset": [
        "number"
      ]
    }
  },
  "error": {
    "required": [
      "code",
      "message"
    ],
    "fields": {
      "code": [
        "string"
      ],
      "message": [
        "string"
      ],
      "remedy": [
        "string"
      ],
      "field": [
        "string"
      ],
      "topic": [
        "string",
        "null"
      ],
      "turn": [
        "string",
        "null"
      ]
    }
  },
  "pong": {
    "required": [
      "at"
    ],
    "fields": {
      "at": [
        "number"
      ]
    }
  },
  "turn_started": {
    "required": [
      "turn"
    ],
    "fields": {
      "turn": [
        "object"
      ]
    }
  },
  "delta": {
    "required": [
      "turn",
      "seq",
      "text",
      "tokens",
      "at"
    ],
    "fields": {
      "turn": [
        "string"
      ],
      "seq": [
        "number"
      ],
      "text": [
        "string"
      ],
      "tokens": [
        "number"
      ],
      "at": [
        "number"
      ],
      "first_mark": [
        "number"
      ],
      "marks": [
        "array"
      ]
    }
  },
  "turn_finished": {
    "required": [
      "turn"
    ],
    "fields": {
      "turn": [
        "object"
      ]
    }
  },
  "branch": {
    "required": [
      "turns"
    ],
    "fields": {
      "turns": [
        "array"
      ]
    }
  },
  "counted": {
    "required": [
      "number",
      "tokens",
      "context_tokens"
    ],
    "fields": {
      "number": [
        "number"
      ],
      "tokens": [
        "number",
        "null"
      ],
      "context_tokens": [
        "number",
        "null"
      ],
      "text": [
        "string",
        "null"
      ],
      "problem": [
        "string"
      ]
    }
  }
};

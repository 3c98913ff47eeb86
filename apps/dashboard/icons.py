"""Icons as path data on a 16 px grid, stroke only. Drawn inline, so they take the text's colour and no request."""

from __future__ import annotations

PATHS: dict[str, str] = {
    "brand": "M2 11.5 6 3.5l2.5 5L11 5l3 6.5M1.5 13.5h13",
    "overview": "M2 2.5h5v5H2zM9 2.5h5v3H9zM9 7.5h5v6H9zM2 9.5h5v4H2z",
    "checkpoint": "M2.5 4c0-1 2.5-1.75 5.5-1.75S13.5 3 13.5 4 11 5.75 8 5.75 2.5 5 2.5 4zM2.5 4v8c0 1 2.5 1.75 "
    "5.5 1.75s5.5-.75 5.5-1.75V4M2.5 8c0 1 2.5 1.75 5.5 1.75S13.5 9 13.5 8",
    "build": "M8 1.75 14 5 8 8.25 2 5zM2 8l6 3.25L14 8M2 11l6 3.25L14 11",
    "deployment": "M2 3h12v4H2zM2 9h12v4H2zM4.5 5h.01M4.5 11h.01M7 5h4.5M7 11h4.5",
    "playground": "M2 3h12v8H7l-3 2.75V11H2zM5 6h6M5 8.5h4",
    "metrics": "M2 2v12h12M4.5 10.5l3-4 2.5 2.5 4-5.5",
    "fleet": "M4.5 4.5h7v7h-7zM6.5 1.75V4.5M9.5 1.75V4.5M6.5 11.5v2.75M9.5 11.5v2.75M1.75 6.5H4.5M1.75 9.5H4.5"
    "M11.5 6.5h2.75M11.5 9.5h2.75",
    "gateway": "M2 2.5h4v11H2zM6 8h5.5M9 5.5 11.5 8 9 10.5M14 2.5v11",
    "gauge": "M2.25 12a6.25 6.25 0 1 1 11.5 0M8 9.5 11 5.5M8 9.5h.01",
    "settings": "M2 4.5h6M12 4.5h2M8 2.75v3.5h3.5v-3.5zM2 11.5h2M8 11.5h6M4.25 9.75v3.5h3.5v-3.5z",
    "search": "M7 2.25a4.75 4.75 0 1 0 0 9.5 4.75 4.75 0 0 0 0-9.5zM10.5 10.5l3.5 3.5",
    "work": "M1.5 8h3l2-5 3.5 10 2-5h2.5",
    "sun": "M8 5.25a2.75 2.75 0 1 0 0 5.5 2.75 2.75 0 0 0 0-5.5zM8 1.5v1.25M8 13.25v1.25M1.5 8h1.25M13.25 8h1.25"
    "M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
    "user": "M8 2.25a2.75 2.75 0 1 0 0 5.5 2.75 2.75 0 0 0 0-5.5zM2.5 14c.4-3 2.6-4.5 5.5-4.5s5.1 1.5 5.5 4.5",
    "more": "M3.5 8h.01M8 8h.01M12.5 8h.01",
    "collapse": "M2 2.5h12v11H2zM6 2.5v11M11 6 9 8l2 2",
    "copy": "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
    "check": "M2.75 8.5 6.25 12l7-8",
    "close": "M3.5 3.5l9 9M12.5 3.5l-9 9",
    "plus": "M8 2.75v10.5M2.75 8h10.5",
    "download": "M8 2v8M4.75 7 8 10.25 11.25 7M2.5 13.5h11",
    "bell": "M8 1.75a4 4 0 0 0-4 4c0 4-1.5 5-1.5 5.5h11c0-.5-1.5-1.5-1.5-5.5a4 4 0 0 0-4-4z"
    "M6.5 13.5c.3.6.85 1 1.5 1s1.2-.4 1.5-1",
    "silent": "M4 6.25c0-.4.05-.8.15-1.15M5.5 2.75A4 4 0 0 1 12 5.75c0 2.2.45 3.5.85 4.3"
    "M11 11.25H2.5c0-.5 1.5-1.5 1.5-5M6.5 13.5c.3.6.85 1 1.5 1s1.2-.4 1.5-1M2 2l12 12",
    "warning": "M8 2 14.5 13.5h-13zM8 6.5v3.25M8 11.75h.01",
    "error": "M5.2 1.75h5.6l3.45 3.45v5.6l-3.45 3.45H5.2L1.75 10.8V5.2zM8 4.75v4M8 11.25h.01",
    "info": "M8 1.75a6.25 6.25 0 1 0 0 12.5 6.25 6.25 0 0 0 0-12.5zM8 7.25v4M8 4.75h.01",
    "play": "M4 2.75v10.5L12.75 8z",
    "stop": "M3.5 3.5h9v9h-9z",
    "retry": "M13.5 2.5v3.75H9.75M13.25 6.25A5.5 5.5 0 1 0 13.5 9",
    "trash": "M2.5 4h11M6 4V2.5h4V4M4 4l.75 9.5h6.5L12 4M6.75 6.75v4M9.25 6.75v4",
    "arrow": "M3 8h10M9 4l4 4-4 4",
    "chevron": "M4 6l4 4 4-4",
    "table": "M2 3h12v10H2zM2 6.5h12M2 9.75h12M6.5 3v10",
    "image": "M2 3h12v10H2zM2 11l3.5-3.5L9 11l2-2 3 3M10.25 5.75h.01",
    "down": "M8 2.5v9M4 8l4 4 4-4M3 14h10",
    "pause": "M5.5 3v10M10.5 3v10",
    "earlier": "M9.5 3.5 5 8l4.5 4.5",
    "later": "M6.5 3.5 11 8l-4.5 4.5",
    "zoom_in": "M7 2.25a4.75 4.75 0 1 0 0 9.5 4.75 4.75 0 0 0 0-9.5zM10.5 10.5l3.5 3.5M7 4.75v4.5M4.75 7h4.5",
    "zoom_out": "M7 2.25a4.75 4.75 0 1 0 0 9.5 4.75 4.75 0 0 0 0-9.5zM10.5 10.5l3.5 3.5M4.75 7h4.5",
    "drawer": "M2 3h12v10H2zM9.5 3v10",
    "external": "M9 2.5h4.5V7M13.5 2.5 7.5 8.5M11.5 9.5v4h-9v-9h4",
    "send": "M8 13.5V3M3.5 7.25 8 2.75l4.5 4.5",
    "pencil": "M2.5 13.5l.6-3L10.5 3l2.5 2.5-7.5 7.5zM9 4.5 11.5 7",
    "rollback": "M5.5 2.5 2.25 5.75 5.5 9M2.5 5.75h7a4 4 0 0 1 0 8H6",
}

# A shape for each colour family, so that a state is never told by colour alone.
SHAPES: dict[str, str] = {
    "ok": '<circle cx="5" cy="5" r="4" stroke="none"/>',
    "busy": '<path d="M5 1a4 4 0 1 1-4 4" fill="none" stroke-width="2"/>',
    "warn": '<path d="M5 .8 9.6 9H.4z" stroke="none"/>',
    "bad": '<path d="M5 .2 9.8 5 5 9.8.2 5z" stroke="none"/>',
    "idle": '<circle cx="5" cy="5" r="3.4" fill="none" stroke-width="1.4"/>',
}

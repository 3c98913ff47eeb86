// The live socket of a page: topics that come and go, one connection for all of them.
//
// A page takes `live` out of this module (no import line here: collectstatic rewrites those in comments too):
//
//   const leave = live.subscribe("build:12", { data: (build, { rows }) => ..., problem: (error) => ... });
//   live.subscribe("metrics:3", { samples: (list, { history }) => ... }, { since: newestSampleAt });
//   live.subscribe("log:build:12", { log: ({ text, reset, skipped }) => ... }, { offset: 0 });
//   live.onState((state) => ...);   // connecting | open | waiting | outdated | refused | closed
//
// data() gets the whole topic each time, first as a snapshot; applying it twice is harmless.

import { Connection } from "./connection.js";

class Topic {
  handlers = new Set();
  version = null;
  data = null;
  resyncing = false;

  constructor(name, { offset = null, since = null } = {}) {
    this.name = name;
    this.offset = offset;
    this.since = since;
  }

  command() {
    const command = { type: "subscribe", topic: this.name };
    if (this.offset !== null) command.offset = this.offset;
    if (this.since !== null) command.since = this.since;
    return command;
  }

  tell(handler, ...given) {
    for (const handlers of this.handlers) handlers[handler]?.(...given);
  }
}

export class LiveClient {
  #topics = new Map();
  #connection;

  constructor(path = "/ws/live/") {
    this.#connection = new Connection(path, (message) => this.#receive(message));
    this.#connection.onState((state) => {
      if (state.name === "open") for (const topic of this.#topics.values()) this.#join(topic);
    });
  }

  get state() {
    return this.#connection.state;
  }

  onState(listener) {
    return this.#connection.onState(listener);
  }

  // Joins the topic at the first subscriber, leaves it with the last; returns a function that ends this one.
  subscribe(name, handlers, from = {}) {
    let topic = this.#topics.get(name);
    if (topic) {
      topic.handlers.add(handlers);
      if (topic.data) handlers.data?.(topic.data, { rows: [], snapshot: true });
    } else {
      topic = new Topic(name, from);
      topic.handlers.add(handlers);
      this.#topics.set(name, topic);
      this.#join(topic);
    }
    this.#connection.open();
    return () => this.#leave(topic, handlers);
  }

  close() {
    this.#topics.clear();
    this.#connection.close();
  }

  #join(topic) {
    topic.resyncing = false;
    this.#connection.send(topic.command());
  }

  #leave(topic, handlers) {
    topic.handlers.delete(handlers);
    if (topic.handlers.size || this.#topics.get(topic.name) !== topic) return;
    this.#topics.delete(topic.name);
    this.#connection.send({ type: "unsubscribe", topic: topic.name });
  }

  #receive(message) {
    const topic = this.#topics.get(message.topic);
    if (!topic) return;
    if (message.type === "snapshot") this.#snapshot(topic, message);
    else if (message.type === "change") this.#change(topic, message);
    else if (message.type === "samples") this.#samples(topic, message.samples, false);
    else if (message.type === "log") this.#log(topic, message);
    else if (message.type === "error") topic.tell("problem", message);
  }

  #snapshot(topic, message) {
    topic.resyncing = false;
    topic.version = message.version;
    if (message.data.samples) {
      this.#samples(topic, message.data.samples, true);
      return;
    }
    topic.data = message.data;
    topic.tell("data", message.data, { rows: [], snapshot: true });
  }

  #change(topic, message) {
    if (topic.version !== null && message.version <= topic.version) return;
    if (message.version !== topic.version + 1) {
      this.#resync(topic);
      return;
    }
    topic.version = message.version;
    topic.data = message.data;
    topic.tell("data", message.data, { rows: message.rows, snapshot: false });
  }

  #resync(topic) {
    if (topic.resyncing) return;
    topic.resyncing = this.#connection.send({ type: "resync", topic: topic.name });
  }

  #samples(topic, samples, history) {
    const fresh = samples.filter((sample) => topic.since === null || sample.at > topic.since);
    if (!fresh.length) return;
    topic.since = fresh[fresh.length - 1].at;
    topic.tell("samples", fresh, { history });
  }

  #log(topic, message) {
    const expected = topic.offset;
    topic.offset = message.offset;
    const moved = expected !== null && message.start !== expected;
    topic.tell("log", {
      text: message.text,
      start: message.start,
      offset: message.offset,
      reset: moved && message.start < expected,
      skipped: moved && message.start > expected ? message.start - expected : 0,
    });
  }
}

// One for the page; it connects at the first subscription.
export const live = new LiveClient();

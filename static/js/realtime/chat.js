// The socket of one conversation.
//
//   const chat = new ChatClient(conversationId, {
//     started: (turn) => ..., delta: (turnId, text, { tokens, at, marks, firstMark }) => ..., finished: (turn) => ...,
//     branch: (turns) => ..., counted: (message) => ..., problem: (error) => ..., state: (state) => ...,
//   });
//   chat.ask({ prompt, system_prompt, params, after });   chat.ask({ regenerate: turnId, params });
//   chat.ask({ edit: turnId, prompt, params });           chat.show(turnId, { here: true });
//   chat.stop(turnId);
//   chat.count({ number, prompt, system_prompt, after });   // answered by counted(message)
//   chat.resume(turnId);   // a page that finds a turn still streaming
//
// A turn goes on while the socket is away; after a reconnect what is missing arrives. `marks` are the engine's messages,
// each [ms since the question was sent, tokens or null, characters] and, where asked for, their log-probabilities.

import { Connection } from "./connection.js";

export class ChatClient {
  #connection;
  #handlers;
  // Turn id -> what was received: { seq: characters, marks: messages }.
  #running = new Map();

  constructor(conversationId, handlers) {
    this.#handlers = handlers;
    this.#connection = new Connection(`/ws/chat/${conversationId}/`, (message) => this.#receive(message));
    this.#connection.onState((state) => {
      if (state.name === "open") for (const turn of this.#running.keys()) this.#resume(turn);
      handlers.state?.(state);
    });
    this.#connection.open();
  }

  get state() {
    return this.#connection.state;
  }

  // Whether it was sent: false while the connection is away.
  ask({ prompt = null, system_prompt = "", params = {}, regenerate = null, edit = null, after = null }) {
    return this.#connection.send({ type: "ask", prompt, system_prompt, params, regenerate, edit, after });
  }

  stop(turn) {
    return this.#connection.send({ type: "stop", turn });
  }

  count(question) {
    return this.#connection.send({ type: "count", ...question });
  }

  show(turn, { here = false } = {}) {
    return this.#connection.send({ type: "show", turn, here });
  }

  resume(turn) {
    this.#running.set(turn, { seq: 0, marks: 0 });
    this.#resume(turn);
  }

  close() {
    this.#running.clear();
    this.#connection.close();
  }

  #resume(turn) {
    const { seq, marks } = this.#running.get(turn);
    this.#connection.send({ type: "resume", turn, from_seq: seq, from_mark: marks });
  }

  #receive(message) {
    if (message.type === "turn_started") this.#started(message.turn);
    else if (message.type === "delta") this.#delta(message);
    else if (message.type === "turn_finished") this.#finished(message.turn);
    else if (message.type === "branch") this.#handlers.branch?.(message.turns);
    else if (message.type === "counted") this.#handlers.counted?.(message);
    else if (message.type === "error") this.#problem(message);
  }

  #started(turn) {
    if (!this.#running.has(turn.uid)) this.#running.set(turn.uid, { seq: 0, marks: 0 });
    this.#handlers.started?.(turn);
  }

  #delta(message) {
    const have = this.#running.get(message.turn);
    if (have === undefined) return;
    const characters = [...message.text];
    const start = message.seq - characters.length;
    if (start > have.seq || message.first_mark > have.marks) {
      this.#resume(message.turn);
      return;
    }
    const text = characters.slice(have.seq - start).join("");
    const firstMark = have.marks;
    const marks = message.marks.slice(have.marks - message.first_mark);
    have.seq = Math.max(have.seq, message.seq);
    have.marks = Math.max(have.marks, message.first_mark + message.marks.length);
    if (!text && !marks.length) return;
    this.#handlers.delta?.(message.turn, text, { tokens: message.tokens, at: message.at, marks, firstMark });
  }

  #finished(turn) {
    this.#running.delete(turn.uid);
    this.#handlers.finished?.(turn);
  }

  #problem(message) {
    if (message.code === "unknown_turn") this.#running.delete(message.turn);
    this.#handlers.problem?.(message);
  }
}

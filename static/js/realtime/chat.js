// The socket of one conversation.
//
//   const chat = new ChatClient(conversationId, {
//     started: (turn) => ..., delta: (turnId, text, { tokens, at }) => ..., finished: (turn) => ...,
//     problem: (error) => ..., state: (state) => ...,
//   });
//   chat.ask({ prompt, system_prompt, params });   chat.ask({ regenerate: turnId, params });
//   chat.stop(turnId);
//   chat.resume(turnId, 0);   // a page that finds a turn still streaming
//
// A turn goes on while the socket is away; after a reconnect the missing text arrives.

import { Connection } from "./connection.js";

export class ChatClient {
  #connection;
  #handlers;
  // Turn id -> characters received.
  #running = new Map();

  constructor(conversationId, handlers) {
    this.#handlers = handlers;
    this.#connection = new Connection(`/ws/chat/${conversationId}/`, (message) => this.#receive(message));
    this.#connection.onState((state) => {
      if (state.name === "open") for (const [turn, seq] of this.#running) this.#resume(turn, seq);
      handlers.state?.(state);
    });
    this.#connection.open();
  }

  get state() {
    return this.#connection.state;
  }

  // Whether it was sent: false while the connection is away.
  ask({ prompt = null, system_prompt = "", params = {}, regenerate = null }) {
    return this.#connection.send({ type: "ask", prompt, system_prompt, params, regenerate });
  }

  stop(turn) {
    return this.#connection.send({ type: "stop", turn });
  }

  resume(turn, seq = 0) {
    this.#running.set(turn, seq);
    this.#resume(turn, seq);
  }

  close() {
    this.#running.clear();
    this.#connection.close();
  }

  #resume(turn, seq) {
    this.#connection.send({ type: "resume", turn, from_seq: seq });
  }

  #receive(message) {
    if (message.type === "turn_started") this.#started(message.turn);
    else if (message.type === "delta") this.#delta(message);
    else if (message.type === "turn_finished") this.#finished(message.turn);
    else if (message.type === "error") this.#problem(message);
  }

  #started(turn) {
    if (!this.#running.has(turn.uid)) this.#running.set(turn.uid, 0);
    this.#handlers.started?.(turn);
  }

  #delta(message) {
    const have = this.#running.get(message.turn);
    if (have === undefined) return;
    const characters = [...message.text];
    const start = message.seq - characters.length;
    if (start > have) {
      this.#resume(message.turn, have);
      return;
    }
    const text = characters.slice(have - start).join("");
    this.#running.set(message.turn, Math.max(have, message.seq));
    this.#handlers.delta?.(message.turn, text, { tokens: message.tokens, at: message.at });
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

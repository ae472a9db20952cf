"""Serve scripted answers on 127.0.0.1 in the protocols that the clients speak.

No model is involved. Apart from temporary errors, the server keeps no state between requests: a
request holds the whole conversation, and the server counts from it which turn comes next. So kills
of a client, and its requests for other purposes such as titles, change nothing.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Self

INPUT_TOKENS, OUTPUT_TOKENS = 1000, 10
"""The tokens that each answer reports."""

_LONGEST_HOLD = 120.0
"""Seconds until a held answer is given up, so that no process waits for ever."""


@dataclass(frozen=True)
class Turn:
    """What the model does in answer to one request.

    Attributes:
        say: a text.
        tool, arguments: the tool to call; the client then asks again. A turn without a tool ends
            the script.
        status: an HTTP error instead of an answer.
        message: what the error says.
        headers: of the error.
        times: how often the error comes before the turn is skipped; 0 for always.
        hold: whether the answer is held back, so that the client waits.
    """

    say: str = ""
    tool: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)
    status: int = 0
    message: str = "refused by the script"
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 0
    hold: bool = False


@dataclass(frozen=True)
class Message:
    """A message of a conversation.

    Attributes:
        by_model: whether the model wrote it.
        text: its text.
        calls: how many tools it calls.
    """

    by_model: bool
    text: str
    calls: int = 0


@dataclass(frozen=True)
class Request:
    """A request of a client.

    Attributes:
        path: of its URL.
        messages: the conversation.
        has_tools: whether the model may call any; clients ask for titles without tools.
        key: the script that applies; "" for none.
    """

    path: str
    messages: tuple[Message, ...]
    has_tools: bool
    key: str


class ModelServer:
    """An HTTP server that answers by scripts; a key in the conversation chooses one.

    The last user message with a key of `scripts` chooses the script. Only the messages after it
    count.

    Attributes:
        scripts: key → turns. After the last turn, and without a key, the model says "Nothing is
            left to do.".
        requests: all requests so far.
        held: set once an answer is held back.
    """

    def __init__(self) -> None:
        self.scripts: dict[str, Sequence[Turn]] = {}
        self.requests: list[Request] = []
        self.held = threading.Event()
        self._over = threading.Event()
        self._failed: Counter[str] = Counter()
        handler = type("Handler", (_Handler,), {"models": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def prompts(self, key: str) -> list[str]:
        """Return the last user message with a key of each conversation, in order, once."""
        found = (
            message.text
            for each in self.requests
            for message in each.messages
            if not message.by_model and key in message.text
        )
        return list(dict.fromkeys(found))

    def turn(self, path: str, messages: Sequence[Message], *, has_tools: bool) -> Turn:
        """Return the model's next turn."""
        key, after = self._key(messages)
        self.requests.append(Request(path, tuple(messages), has_tools, key))
        script = self.scripts.get(key, ())
        if script and script[0].times:
            self._failed[key] += 1
            script = script if self._failed[key] <= script[0].times else script[1:]
        done = sum(1 for each in after if each.by_model and each.calls)
        turn = script[done] if done < len(script) else Turn("Nothing is left to do.")
        if turn.hold:
            self.held.set()
            self._over.wait(_LONGEST_HOLD)
        return turn

    def _key(self, messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
        """Return a conversation's key, and the messages after the last one with it."""
        for number in range(len(messages), 0, -1):
            message = messages[number - 1]
            for key in reversed(self.scripts):
                if not message.by_model and key in message.text:
                    return key, messages[number:]
        return "", ()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    models: ClassVar[ModelServer]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing: `ModelServer.requests` has the requests."""

    def do_HEAD(self) -> None:
        self._whole({})

    def do_GET(self) -> None:
        self._whole(
            {
                "object": "list",
                "data": [
                    {
                        "id": "scripted",
                        "object": "model",
                        "type": "model",
                        "display_name": "scripted",
                    }
                ],
            }
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith(("/count_tokens", ":countTokens")):
            self._whole({"input_tokens": INPUT_TOKENS, "totalTokens": INPUT_TOKENS})
            return
        for end, protocol in PROTOCOLS.items():
            if path.endswith(end):
                messages = list(protocol.messages(body))
                turn = self.models.turn(path, messages, has_tools=bool(body.get("tools")))
                self._answer(
                    protocol, turn, body, streamed=bool(body.get("stream")) or "stream" in end
                )
                return
        self._whole({})

    def _answer(
        self, protocol: _Protocol, turn: Turn, body: Mapping[str, Any], *, streamed: bool
    ) -> None:
        if turn.hold:
            self.close_connection = True
        elif turn.status:
            self._whole(protocol.error(turn), turn.status, turn.headers)
        elif streamed:
            self._stream(protocol.events(turn, str(body.get("model", "scripted"))))
        else:
            self._whole(protocol.whole(turn, str(body.get("model", "scripted"))))

    def _whole(
        self, value: object, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        own = {"content-type": "application/json", "content-length": str(len(data))}
        for name, text in {**own, **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, events: Iterator[tuple[str, object]]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for name, value in events:
            head = f"event: {name}\n" if name else ""
            data = value if isinstance(value, str) else json.dumps(value)
            self.wfile.write(f"{head}data: {data}\n\n".encode())


class _Protocol(ABC):
    """Read requests and write answers of one protocol."""

    @abstractmethod
    def messages(self, body: Mapping[str, Any]) -> Iterator[Message]:
        """Yield the messages of a request."""

    @abstractmethod
    def whole(self, turn: Turn, model: str) -> object:
        """Return an answer that is not streamed."""

    @abstractmethod
    def events(self, turn: Turn, model: str) -> Iterator[tuple[str, object]]:
        """Yield name and content of each event of a streamed answer."""

    def error(self, turn: Turn) -> object:
        """Return the body of an HTTP error."""
        return {"error": {"message": turn.message, "type": "scripted_error", "code": turn.status}}


def _text(content: object) -> str:
    """Return the text of a message's content, without tool results."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    kinds = (None, "text", "input_text", "output_text")
    return "\n".join(
        str(each["text"])
        for each in parts
        if isinstance(each, dict) and "text" in each and each.get("type") in kinds
    )


class _Anthropic(_Protocol):
    """Anthropic's Messages API."""

    def messages(self, body: Mapping[str, Any]) -> Iterator[Message]:
        for each in body["messages"]:
            content = each["content"]
            calls = (
                sum(part.get("type") == "tool_use" for part in content)
                if isinstance(content, list)
                else 0
            )
            yield Message(each["role"] == "assistant", _text(content), calls)

    def whole(self, turn: Turn, model: str) -> object:
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
        return {
            **self._head(model),
            "content": self._blocks(turn),
            "stop_reason": self._reason(turn),
            "usage": usage,
        }

    def events(self, turn: Turn, model: str) -> Iterator[tuple[str, object]]:
        def event(kind: str, **more: object) -> tuple[str, object]:
            return kind, {"type": kind, **more}

        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": 0}
        yield event(
            "message_start",
            message={**self._head(model), "content": [], "stop_reason": None, "usage": usage},
        )
        for index, block in enumerate(self._blocks(turn)):
            begin: dict[str, object]
            if block["type"] == "text":
                begin, delta = (
                    {"type": "text", "text": ""},
                    {"type": "text_delta", "text": block["text"]},
                )
            else:
                begin, delta = (
                    {**block, "input": {}},
                    {"type": "input_json_delta", "partial_json": json.dumps(block["input"])},
                )
            yield event("content_block_start", index=index, content_block=begin)
            yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        reason = {"stop_reason": self._reason(turn), "stop_sequence": None}
        yield event("message_delta", delta=reason, usage={"output_tokens": OUTPUT_TOKENS})
        yield event("message_stop")

    def error(self, turn: Turn) -> object:
        kinds = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
        return {
            "type": "error",
            "error": {"type": kinds.get(turn.status, "api_error"), "message": turn.message},
        }

    @staticmethod
    def _head(model: str) -> dict[str, object]:
        return {
            "id": _name("msg"),
            "type": "message",
            "role": "assistant",
            "model": model,
            "stop_sequence": None,
        }

    @staticmethod
    def _blocks(turn: Turn) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": turn.say}] if turn.say else []
        if turn.tool:
            blocks.append(
                {
                    "type": "tool_use",
                    "id": _name("toolu"),
                    "name": turn.tool,
                    "input": dict(turn.arguments),
                }
            )
        return blocks

    @staticmethod
    def _reason(turn: Turn) -> str:
        return "tool_use" if turn.tool else "end_turn"


class _Responses(_Protocol):
    """OpenAI's Responses API, in which each tool call is a separate item."""

    def messages(self, body: Mapping[str, Any]) -> Iterator[Message]:
        for each in body["input"]:
            kind = each.get("type", "message")
            if kind == "message":
                yield Message(each.get("role") == "assistant", _text(each.get("content")))
            elif kind == "function_call":
                yield Message(by_model=True, text="", calls=1)

    def whole(self, turn: Turn, model: str) -> object:
        usage = {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        output = self._items(turn)
        return {
            "id": _name("resp"),
            "object": "response",
            "status": "completed",
            "model": model,
            "output": output,
            "usage": usage,
        }

    def events(self, turn: Turn, model: str) -> Iterator[tuple[str, object]]:
        whole = self.whole(turn, model)
        assert isinstance(whole, dict)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        yield "response.created", {"type": "response.created", "response": begun}
        for index, item in enumerate(whole["output"]):
            for kind in ("response.output_item.added", "response.output_item.done"):
                yield kind, {"type": kind, "output_index": index, "item": item}
        yield "response.completed", {"type": "response.completed", "response": whole}

    @staticmethod
    def _items(turn: Turn) -> list[dict[str, Any]]:
        said = {"type": "output_text", "text": turn.say, "annotations": []}
        items: list[dict[str, Any]] = []
        if turn.say:
            items.append(
                {
                    "type": "message",
                    "id": _name("msg"),
                    "role": "assistant",
                    "status": "completed",
                    "content": [said],
                }
            )
        if turn.tool:
            arguments = json.dumps(dict(turn.arguments))
            call = {
                "id": _name("fc"),
                "call_id": _name("call"),
                "status": "completed",
                "name": turn.tool,
                "arguments": arguments,
            }
            items.append({"type": "function_call", **call})
        return items


class _Chat(_Protocol):
    """OpenAI's Chat Completions API, which many other clients speak."""

    _USAGE: ClassVar[dict[str, int]] = {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }

    def messages(self, body: Mapping[str, Any]) -> Iterator[Message]:
        for each in body["messages"]:
            yield Message(
                each["role"] == "assistant",
                _text(each.get("content")),
                len(each.get("tool_calls") or ()),
            )

    def whole(self, turn: Turn, model: str) -> object:
        message = {
            "role": "assistant",
            "content": turn.say or None,
            **({"tool_calls": self._calls(turn)} if turn.tool else {}),
        }
        choice = {"index": 0, "message": message, "finish_reason": self._reason(turn)}
        return {
            **self._head(model),
            "object": "chat.completion",
            "choices": [choice],
            "usage": self._USAGE,
        }

    def events(self, turn: Turn, model: str) -> Iterator[tuple[str, object]]:
        head = {**self._head(model), "object": "chat.completion.chunk"}
        calls = [{"index": 0, **call} for call in self._calls(turn)]
        for delta in (
            {"role": "assistant", "content": turn.say},
            *([{"tool_calls": calls}] if calls else []),
        ):
            yield "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield (
            "",
            {
                **head,
                "choices": [{"index": 0, "delta": {}, "finish_reason": self._reason(turn)}],
                "usage": self._USAGE,
            },
        )
        yield "", "[DONE]"

    @staticmethod
    def _head(model: str) -> dict[str, object]:
        return {"id": _name("chatcmpl"), "created": 1, "model": model}

    @staticmethod
    def _calls(turn: Turn) -> list[dict[str, Any]]:
        function = {"name": turn.tool, "arguments": json.dumps(dict(turn.arguments))}
        return (
            [{"id": _name("call"), "type": "function", "function": function}] if turn.tool else []
        )

    @staticmethod
    def _reason(turn: Turn) -> str:
        return "tool_calls" if turn.tool else "stop"


class _Gemini(_Protocol):
    """Gemini's generateContent API."""

    def messages(self, body: Mapping[str, Any]) -> Iterator[Message]:
        for each in body["contents"]:
            parts = each.get("parts") or []
            yield Message(
                each.get("role") == "model",
                _text(parts),
                sum("functionCall" in part for part in parts),
            )

    def whole(self, turn: Turn, model: str) -> object:
        parts: list[dict[str, object]] = [{"text": turn.say}] if turn.say else []
        if turn.tool:
            parts.append({"functionCall": {"name": turn.tool, "args": dict(turn.arguments)}})
        usage = {
            "promptTokenCount": INPUT_TOKENS,
            "candidatesTokenCount": OUTPUT_TOKENS,
            "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        candidate = {
            "index": 0,
            "content": {"role": "model", "parts": parts},
            "finishReason": "STOP",
        }
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}

    def events(self, turn: Turn, model: str) -> Iterator[tuple[str, object]]:
        yield "", self.whole(turn, model)

    def error(self, turn: Turn) -> object:
        kinds = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED"}
        return {
            "error": {
                "code": turn.status,
                "message": turn.message,
                "status": kinds.get(turn.status, "UNAVAILABLE"),
            }
        }


PROTOCOLS: Mapping[str, _Protocol] = {
    "/messages": _Anthropic(),
    "/responses": _Responses(),
    "/chat/completions": _Chat(),
    ":streamGenerateContent": _Gemini(),
    ":generateContent": _Gemini(),
}
"""The end of a path → the protocol of its requests."""

_numbers = iter(range(1, 1 << 30))


def _name(kind: str) -> str:
    """Return an id that is unique in this process."""
    return f"{kind}_scripted{next(_numbers):06d}"

"""Renders a chat template in a process of its own, whose memory and time are limited: a template is downloaded code.

Templates find there what they find in `transformers`: its filters, functions, extensions of Jinja, and settings of white space.

It reads a JSON object from standard input, `{"template", "conversations", "prompt", "tokens", "paths", "bytes"}`, and writes one: `{"texts"}`, or `{"error"}`.
With `--many`, each line is such an object, and so is each line that it writes.
It imports nothing of this package, so that it starts quickly.
"""

import json
import re
import sys

NOT_ASCII = "[^\t\n -~\ufdd0\ue001]"  # without the marks in special tokens that a message spells out, and of a reply


def main() -> None:
    if "--many" not in sys.argv:
        json.dump(answer_to(json.load(sys.stdin)), sys.stdout)
        return
    for line in sys.stdin:
        print(json.dumps(answer_to(json.loads(line))), flush=True)


def answer_to(request: dict) -> dict[str, object]:  # type: ignore[type-arg]  # nothing is imported for it
    sys.path.extend(path for path in request["paths"] if path not in sys.path)
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    import jinja2.parser
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """`{% generation %} ... {% endgeneration %}` marks what the model wrote, for training. Here it is rendered as it is."""

        tags: set[str] = {"generation"}

        def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (request["bytes"], request["bytes"]))
    except (ImportError, ValueError, OSError):  # not on this system
        pass

    class Refusal(Exception):
        """The template's own refusal of a conversation."""

    def refuse(message: object) -> None:
        raise Refusal(str(message))

    def now(layout: str) -> str:
        from datetime import datetime

        return datetime.now().strftime(layout)

    def to_json(
        value: object,
        ensure_ascii: bool = False,
        indent: "int | str | None" = None,
        separators: "tuple[str, str] | None" = None,
        sort_keys: bool = False,
    ) -> str:
        """JSON as Python writes it; Jinja's own filter would write `<` as \\u003c. The marks of this package stay as they are."""
        text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
        return re.sub(NOT_ASCII, lambda match: json.dumps(match[0])[1:-1], text) if ensure_ascii else text

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = to_json
    environment.globals.update(raise_exception=refuse, strftime_now=now)
    answer: dict[str, object]
    try:
        template = environment.from_string(request["template"])
        answer = {
            "texts": [
                template.render(messages=messages, add_generation_prompt=request["prompt"], **request["tokens"])
                for messages in request["conversations"]
            ]
        }
    except Refusal as error:
        answer = {"refusal": str(error)[:300]}
    except MemoryError:
        answer = {"error": "it needs too much memory"}
    except RecursionError:
        answer = {"error": "it calls itself without end"}
    except Exception as error:  # whatever a template's expressions raise
        answer = {"error": f"{type(error).__name__}: {error}"[:300]}
    return answer


if __name__ == "__main__":
    main()

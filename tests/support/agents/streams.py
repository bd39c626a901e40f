"""A streamed chat completion, put together as OpenAI's clients do."""


async def assemble(chunks):
    """(message, finish_reason, usage or None) of a stream's chunks: a tool call comes in parts."""
    content, calls, finish, usage = "", {}, None, None
    async for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                whole = calls.setdefault(
                    call.index, {"id": call.id, "type": call.type, "function": {"name": "", "arguments": ""}}
                )
                whole["function"]["name"] += call.function.name or ""
                whole["function"]["arguments"] += call.function.arguments or ""
    message = {"role": "assistant", "content": content}
    return message | ({"tool_calls": [calls[n] for n in sorted(calls)]} if calls else {}), finish, usage

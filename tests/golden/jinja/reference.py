"""Jinja2 as transformers sets it up, for the scripts that compare with it: a fixed date, errors as values."""
import datetime

import transformers.utils.chat_template_utils as utils

DATE = datetime.datetime(2026, 3, 5, 7, 8, 9)


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DATE


utils.datetime = FixedDate


def generation_bytes(text, ranges):
    """Ranges in characters to ranges in bytes, without empty ones, with neighbours joined."""
    result = []
    for begin, end in ranges:
        begin, end = len(text[:begin].encode()), len(text[:end].encode())
        if begin == end:
            continue
        if result and result[-1][1] == begin:
            result[-1][1] = end
        else:
            result.append([begin, end])
    return result


def render(template, variables, mask=True):
    """{"output", "generation"} or {"error": kind}."""
    try:
        compiled = utils._compile_jinja_template(template)
        blocks, ranges = [], []
        with compiled.environment.activate_tracker(blocks, ranges):
            for block in compiled.generate(**variables):
                blocks.append(block)
            text = "".join(blocks)
            text.encode()
        return {"output": text, "generation": generation_bytes(text, ranges) if mask else []}
    except Exception as error:
        return {"error": type(error).__name__}

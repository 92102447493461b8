"""Reads what the Ascend tools print: tables, key and value answers, refusals. Pure: text in, values
and series out; no commands, no clock, no judgement."""

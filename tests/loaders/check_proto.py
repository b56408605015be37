#!/usr/bin/env python3
"""loaders/onnx.proto against the descriptor in the onnx package: messages, fields (number,
type, label, oneof, packing), enums.

usage: check_proto.py loaders/onnx.proto
"""
import re
import sys

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from onnx import onnx_ml_pb2

SCALARS = {"double", "float", "int64", "uint64", "int32", "uint32", "bool", "string", "bytes"}


def expected_enum(facts, prefix, enum):
    facts[prefix + enum.name] = {("value", v.name, v.number) for v in enum.value}


def expected_message(facts, prefix, message):
    name = prefix + message.name
    rows = set()
    for f in message.field:
        kind = f.type_name[len(".onnx."):] if f.type_name else Field.Type.Name(f.type)[5:].lower()
        oneof = message.oneof_decl[f.oneof_index].name if f.HasField("oneof_index") else ""
        label = "oneof" if oneof else Field.Label.Name(f.label)[6:].lower()
        rows.add(("field", f.name, f.number, kind, label, oneof, f.options.packed))
    facts[name] = rows
    for inner in message.nested_type:
        expected_message(facts, name + ".", inner)
    for enum in message.enum_type:
        expected_enum(facts, name + ".", enum)


def expected():
    file = FileDescriptorProto()
    onnx_ml_pb2.DESCRIPTOR.CopyToProto(file)
    facts = {}
    for message in file.message_type:
        expected_message(facts, "", message)
    for enum in file.enum_type:
        expected_enum(facts, "", enum)
    return facts


class Parser:
    """The part of the .proto language that onnx.proto uses."""

    def __init__(self, text):
        text = re.sub(r"//[^\n]*", "", text)
        self.tokens = re.findall(r'"[^"]*"|[\w.]+|[{}=;\[\],]', text)
        self.at = 0
        self.facts = {}

    def take(self, wanted=None):
        token = self.tokens[self.at]
        self.at += 1
        assert wanted is None or token == wanted, (wanted, token, self.at)
        return token

    def skip_statement(self):
        while self.take() != ";":
            pass

    def file(self):
        while self.at < len(self.tokens):
            word = self.take()
            if word == "message":
                self.message("")
            elif word == "enum":
                self.enum("")
            else:
                self.skip_statement()
        return self.facts

    def enum(self, prefix):
        rows = self.facts[prefix + self.take()] = set()
        self.take("{")
        while self.tokens[self.at] != "}":
            name = self.take()
            self.take("=")
            rows.add(("value", name, int(self.take(), 0)))
            self.take(";")
        self.take("}")

    def message(self, prefix):
        name = prefix + self.take()
        rows = self.facts[name] = set()
        self.take("{")
        while self.tokens[self.at] != "}":
            word = self.take()
            if word == "message":
                self.message(name + ".")
            elif word == "enum":
                self.enum(name + ".")
            elif word == "reserved":
                self.skip_statement()
            elif word == "oneof":
                oneof = self.take()
                self.take("{")
                while self.tokens[self.at] != "}":
                    rows.add(self.field("oneof", oneof))
                self.take("}")
            else:
                rows.add(self.field(word, ""))
        self.take("}")

    def field(self, label, oneof):
        kind, name = self.take(), self.take()
        self.take("=")
        number = int(self.take(), 0)
        packed = False
        if self.tokens[self.at] == "[":
            packed = self.tokens[self.at:self.at + 5] == ["[", "packed", "=", "true", "]"]
            assert packed
            self.at += 5
        self.take(";")
        return ("field", name, number, kind, label, oneof, packed)


def resolve(facts):
    """Type names as full ones, looked up from the inside out."""
    for scope, rows in facts.items():
        for row in list(rows):
            if row[0] != "field" or row[3] in SCALARS:
                continue
            parts = scope.split(".")
            for depth in range(len(parts), -1, -1):
                full = ".".join(parts[:depth] + [row[3]])
                if full in facts:
                    rows.remove(row)
                    rows.add(row[:3] + (full,) + row[4:])
                    break
    return facts


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        ours = resolve(Parser(f.read()).file())
    theirs = expected()
    bad = 0
    for name in sorted(set(ours) | set(theirs)):
        for row in sorted(map(str, ours.get(name, set()) - theirs.get(name, set()))):
            print(f"{name}: only ours: {row}")
            bad += 1
        for row in sorted(map(str, theirs.get(name, set()) - ours.get(name, set()))):
            print(f"{name}: only ONNX's: {row}")
            bad += 1
    print(f"{len(theirs)} messages and enums, {sum(map(len, theirs.values()))} rows, "
          f"{bad} differences")
    return 1 if bad or len(theirs) < 30 else 0


if __name__ == "__main__":
    sys.exit(main())

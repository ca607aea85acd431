"""A small network and rules of one pattern."""

from placer.common.yaml_file import parse_text
from placer.rules.schema import Rule

HEAD = '<ir_version: 9, opset_import: ["": 17]>'
NET = f"""
{HEAD}
g (float[1,32,8,8] x) => (float[1,4,8,8] out, float[1,4,8,8] r)
<float[4,32,3,3] w = {{1}}, float low = {{0}}, float high = {{6}}, float[2] two = {{-1, 6}}> {{
  [conv1] c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], auto_pad = "NOTSET">(x, w)
  [clip1] r = Clip(c, low, high)
  [relu1] out = Relu(r)
}}
"""


def rule(pattern: str, condition: str = "", layouts: str = "float: {default: true}") -> Rule:
    where = f"where:\n  - {condition}\n" if condition else ""
    text = f"""
id: tested
why: a sentence for the test
source: test
pattern:{pattern}
{where}layouts: {{{layouts}}}
"""
    return parse_text(text, "rule.yaml", Rule)

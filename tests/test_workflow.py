import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.errors import WorkflowError
from podium.types import Step, Workflow
from podium.workflow import MAX_CHARS, parse, render

CHAIN = Workflow((Step(0, "plan"), Step(1, "solve [carefully]", (0,)), Step(2, "check", (0, 1))))


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    subtasks = draw(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=6))
    accesses = [
        st.just("all")
        | st.sets(st.integers(0, max(0, i - 1)), max_size=i).map(lambda s: tuple(sorted(s)))
        for i in range(len(subtasks))
    ]
    return Workflow(
        tuple(
            Step(draw(st.integers(0, 7)), subtask, draw(access))
            for subtask, access in zip(subtasks, accesses, strict=True)
        )
    )


@given(workflows())
def test_a_rendered_workflow_reads_back_as_itself(workflow: Workflow):
    assert parse(render(workflow), workers=8, max_steps=6) == workflow


@given(workflows(), st.text(alphabet="abc .,:`\n"))
def test_prose_around_the_lists_changes_nothing(workflow: Workflow, prose: str):
    text = f"{prose}\n{render(workflow)}\n{prose}"
    assert parse(text, workers=8, max_steps=6) == workflow


FRAGMENTS = st.sampled_from(
    ["model_id", "subtasks", "access_list", "access", " = ", ": ", "[", "]", "(", ")", ", ", "0",
     "-1", "99999999999", '"a"', "'", '"', "“x”", "\\", "\\u12", "<think>", "</think>", "```",
     "all", '"all"', "None", "#", "\n", "{", "é", "\x00"]
)  # fmt: skip


@given(st.lists(FRAGMENTS | st.text(max_size=5), max_size=60).map("".join))
def test_any_text_gives_a_workflow_or_a_complaint(text: str):
    try:
        found = parse(text, workers=3, may_stop=True)
    except WorkflowError as complaint:
        assert str(complaint)
    else:
        assert parse(render(found), workers=3, may_stop=True) == found


def test_reads_lists_out_of_surrounding_prose():
    text = f"Let me think.\n```python\n{render(CHAIN)}\n```\nDone."
    assert parse(text, workers=3) == CHAIN


@pytest.mark.parametrize(
    "text",
    [
        "model_id=[0,1]\nsubtasks=['a','b']\naccess_list=[[],[0]]",
        "Model IDs: [0, 1]\nSubtasks: ['a', 'b']\nAccess: [[], [0]]",
        "**model_id**: [0, 1]\n**subtask**: ['a', 'b']\n**access list**: [[], 0]",
        '{"model_id": [0, 1], "subtasks": ["a", "b"], "access_list": [[], [0]]}',
        "```\nmodel_id = ['0', '1']\n```\nsubtasks:\n```json\n['a', 'b']\n```\naccess = [(), (0,)]",
        "model_id = [0, 1]\nsubtasks = [“a”, ‘b’]\naccess_list = [[], [0]]",
        'model_id = [0, # the first\n 1]\nsubtasks = ["""a""", "b"]\naccess_list = [None, ["0"]]',
        "access_list = [[], [0]]\nsubtasks = ['a', 'b']\nmodel_id = [0, 1]",
        "<think>model_id = [2]</think>model_id=[0,1] subtasks=['a','b'] access_list=[[],[0]]",
        "model_id=[2]</think>model_id=[0,1] subtasks=['a','b'] access_list=[[],[0]]",
    ],
)
def test_reads_what_models_write(text: str):
    assert parse(text, workers=3) == Workflow((Step(0, "a"), Step(1, "b", (0,))))


@pytest.mark.parametrize("written", ['"all"', '["all"]', "['ALL', 0]", "all"])
def test_all_is_read_however_it_is_written(written: str):
    text = f'model_id=[0,0]\nsubtasks=["a","b"]\naccess_list=[[], {written}]'
    assert parse(text, workers=1).steps[1].access == "all"


def test_the_first_list_under_a_label_counts():
    text = "model_id=[0] subtasks=['a'] model_id=[1] access_list=[[]] subtasks=['b']"
    assert parse(text, workers=2) == Workflow((Step(0, "a"),))


def test_labels_inside_a_subtask_are_text():
    flow = Workflow((Step(0, "write access_list = [[9]] and model_id: [7] </think>"),))
    assert parse(render(flow), workers=1) == flow


def test_latex_in_a_subtask_survives():
    text = r"""model_id=[0] subtasks=["simplify \frac{1}{2} and \\beta"] access_list=[[]]"""
    assert parse(text, workers=1).steps[0].subtask == r"simplify \frac{1}{2} and \beta"


def test_an_empty_workflow_is_a_decision_only_after_a_first_round():
    empty = render(Workflow(()))
    assert parse(empty, workers=1, may_stop=True) == Workflow(())
    with pytest.raises(WorkflowError, match="something to do"):
        parse(empty, workers=1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("I would ask the first worker.", r"no list `model_id = \[...\]`"),
        ("model_id=[0] subtasks=['a']", "no list `access_list"),
        ("model_id=[0]\nsubtasks=['a','b']\naccess_list=[[]]", "equally long.*subtasks 2"),
        ("model_id=[9]\nsubtasks=['a']\naccess_list=[[]]", "step 0: model_id.* 0 to 2, got 9"),
        ("model_id=['x']\nsubtasks=['a']\naccess_list=[[]]", "step 0: model_id.*got 'x'"),
        ("model_id=[0]\nsubtasks=['a']\naccess_list=[[0]]", "step 0: may only read.*got \\[0\\]"),
        ("model_id=[0,0]\nsubtasks=['a','b']\naccess_list=[[1],[]]", "step 0: may only read"),
        ("model_id=[0,0]\nsubtasks=['a','b']\naccess_list=[[],[[0]]]", "nested too deeply"),
        ("model_id=[0]\nsubtasks=['  ']\naccess_list=[[]]", "step 0: the subtask.*non-empty"),
        ("model_id=[0]\nsubtasks=[3]\naccess_list=[[]]", "step 0: the subtask.*got 3"),
        ("model_id=[0]\nsubtasks=[f()]\naccess_list=[[]]", "cannot read 'f'.*quotes"),
        ("model_id=[{[]}]\nsubtasks=['a']\naccess_list=[[]]", "`model_id`: cannot read"),
        ("model_id=[0.5]\nsubtasks=['a']\naccess_list=[[]]", "`model_id`: cannot read"),
        (f"model_id=[{'[' * 5000}{']' * 5000}]", "nested too deeply"),
        ("model_id=[0", "`model_id` is never closed"),
        (f"model_id=[{'0,' * 6}]subtasks=[{'1,' * 6}]access=[{'[],' * 6}]", "6 steps: at most 5"),
        (f"model_id=[{'0,' * 100}]", "more than 64 entries"),
        ("x" * (MAX_CHARS + 1), f"at most {MAX_CHARS} are read"),
    ],
)
def test_says_place_rule_and_value(text: str, complaint: str):
    with pytest.raises(WorkflowError, match=complaint):
        parse(text, workers=3)

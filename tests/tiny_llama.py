"""A random Llama of a few thousand weights that knows the words of drafts: seconds to train."""

from __future__ import annotations

from pathlib import Path

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|im_end|>", "<|im_start|>", "<unk>")
WORDS = r"\w+|\s|[^\w\s]"


def save_tiny_llama(directory: Path, texts: list[str], *, chat: bool = True) -> Path:
    """Write model and tokenizer; the vocabulary is the words and signs of `texts`."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    split = pre_tokenizers.Split(Regex(WORDS), "isolated")
    known = "".join([*texts, "user assistant system 0 1 2 3 4 5 6 7 8 9 \n"])
    pieces = dict.fromkeys(piece for piece, _ in split.pre_tokenize_str(known))
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *pieces])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<unk>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHAT if chat else None,
        clean_up_tokenization_spaces=False,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            eos_token_id=0,
            pad_token_id=0,
            bos_token_id=None,
            tie_word_embeddings=False,
        )
    )
    model.save_pretrained(directory)
    fast.save_pretrained(directory)
    return directory

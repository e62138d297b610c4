"""The calls of transformers that tests make: make tiny models with fixed seeds, and load them by path or from the
Hub."""
import hashlib

import torch
import transformers

transformers.logging.set_verbosity_error()
SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
KINDS = {
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig, {**SMALL, "num_key_value_heads": 2}),
    "qwen3": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config,
              {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": True}),
    "bert": (transformers.BertForMaskedLM, transformers.BertConfig, SMALL),
}
LOADERS = {"llama": transformers.AutoModelForCausalLM, "qwen3": transformers.AutoModelForCausalLM,
           "bert": transformers.AutoModelForMaskedLM}


def make(kind, folder):
    """Write the same model three times: as one safetensors file, as several, and as pickles alone."""
    torch.manual_seed(sorted(KINDS).index(kind))
    model_class, config_class, sizes = KINDS[kind]
    model = model_class(config_class(**sizes)).eval()
    for parameter in model.parameters():        # biases and norms must differ from those of a new model, too
        parameter.data.normal_(0, 0.1)
    model.save_pretrained(f"{folder}/{kind}")
    model.save_pretrained(f"{folder}/{kind}-sharded", max_shard_size="20KB")
    model.config.save_pretrained(f"{folder}/{kind}-bin")
    torch.save(model.state_dict(), f"{folder}/{kind}-bin/pytorch_model.bin")
    return fingerprint(model)


def fingerprint(model):
    """Return the SHA-256 of every weight, and of the model's output for some tokens."""
    def digest(t):
        return hashlib.sha256(t.detach().contiguous().numpy().tobytes()).hexdigest()
    with torch.no_grad():
        logits = model(torch.arange(12).reshape(2, 6)).logits
    return {"weights": {n: digest(t) for n, t in model.state_dict().items()}, "logits": digest(logits)}


def load(kind, name, **kw):
    return fingerprint(LOADERS[kind].from_pretrained(name, **kw).eval())


def make_with_tokenizer(kind, folder):
    """Write a model and a tokenizer of a few words."""
    import tokenizers
    words = ["[UNK]", "[PAD]", "[MASK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz"]
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="[UNK]", pad_token="[PAD]",
                                         mask_token="[MASK]", cls_token="[CLS]",
                                         sep_token="[SEP]").save_pretrained(f"{folder}/{kind}")
    make(kind, folder)


def pipe(model, text):
    """Make a pipeline without naming its task. Return one answer of it."""
    made = transformers.pipeline(model=model)
    made(text)
    return {"task": made.task}


# The tasks that the Hub derives from the auto mappings: PIPELINE_TAGS_AND_AUTO_MODELS in utils/update_metadata.py of
# transformers, and the pipelines of 5.x that came since.
TASKS = {
    "MODEL": "feature-extraction",
    "MODEL_FOR_IMAGE": "image-feature-extraction",
    "MODEL_FOR_CAUSAL_LM": "text-generation",
    "MODEL_FOR_AUDIO_CLASSIFICATION": "audio-classification",
    "MODEL_FOR_CTC": "automatic-speech-recognition",
    "MODEL_FOR_IMAGE_CLASSIFICATION": "image-classification",
    "MODEL_FOR_IMAGE_SEGMENTATION": "image-segmentation",
    "MODEL_FOR_SEMANTIC_SEGMENTATION": "image-segmentation",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT": "image-text-to-text",
    "MODEL_FOR_MASKED_LM": "fill-mask",
    "MODEL_FOR_OBJECT_DETECTION": "object-detection",
    "MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION": "zero-shot-object-detection",
    "MODEL_FOR_QUESTION_ANSWERING": "question-answering",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM": "text2text-generation",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION": "text-classification",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ": "automatic-speech-recognition",
    "MODEL_FOR_TABLE_QUESTION_ANSWERING": "table-question-answering",
    "MODEL_FOR_TOKEN_CLASSIFICATION": "token-classification",
    "MODEL_FOR_MULTIPLE_CHOICE": "multiple-choice",
    "MODEL_FOR_VIDEO_CLASSIFICATION": "video-classification",
    "MODEL_FOR_DEPTH_ESTIMATION": "depth-estimation",
    "MODEL_FOR_MASK_GENERATION": "mask-generation",
    "MODEL_FOR_TEXT_TO_SPECTROGRAM": "text-to-audio",
    "MODEL_FOR_TEXT_TO_WAVEFORM": "text-to-audio",
    "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION": "zero-shot-image-classification",
    "MODEL_FOR_DOCUMENT_QUESTION_ANSWERING": "document-question-answering",
    "MODEL_FOR_VISUAL_QUESTION_ANSWERING": "visual-question-answering",
    "MODEL_FOR_KEYPOINT_MATCHING": "keypoint-matching",
    "MODEL_FOR_MULTIMODAL_LM": "any-to-any",
}


def tasks():
    """Return class -> tasks, for all classes of the mappings."""
    from transformers.models.auto import modeling_auto
    found = {}
    for mapping, task in TASKS.items():
        for names in getattr(modeling_auto, f"{mapping}_MAPPING_NAMES").values():
            for name in [names] if isinstance(names, str) else names:
                found.setdefault(name, [])
                if task not in found[name]:
                    found[name].append(task)
    return found

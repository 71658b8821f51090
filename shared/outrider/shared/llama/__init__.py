"""llama.cpp as both ends use it: model, context and tokenizer over the low-level binding."""

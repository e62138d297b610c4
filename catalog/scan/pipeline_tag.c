#include "catalog/scan/pipeline_tag.h"

#include <stddef.h>
#include <string.h>

struct rule {
    const char *name, *tag;
};

/* Classes with an ending that is misleading, or does not show the task. */
static const struct rule classes[] = {
    {"FuyuForCausalLM", "image-text-to-text"},
    {"GitForCausalLM", "image-text-to-text"},
    {"Mistral4ForCausalLM", "image-text-to-text"},
    {"Phi4MultimodalForCausalLM", "any-to-any"},
    {"VisionEncoderDecoderModel", "image-text-to-text"},
    {"EncoderDecoderModel", "text2text-generation"},
    {"MarianMTModel", "text2text-generation"},
    {"SpeechEncoderDecoderModel", "automatic-speech-recognition"},
    {"Llama4VisionModel", "image-feature-extraction"},
    {"MllamaVisionModel", "image-feature-extraction"},
    {"BarkModel", "text-to-audio"},
    {"VitsModel", "text-to-audio"},
    {"FastSpeech2ConformerModel", "text-to-audio"},
    {"FastSpeech2ConformerWithHifiGan", "text-to-audio"},
    {"ReformerModelWithLMHead", "text-generation"},
    {"BertGenerationDecoder", "text-generation"},
    {"XLMWithLMHeadModel", "fill-mask"},
    {"FlaubertWithLMHeadModel", "fill-mask"},
    {"LayoutLMForQuestionAnswering", "document-question-answering"},
    {"LayoutLMv2ForQuestionAnswering", "document-question-answering"},
    {"LayoutLMv3ForQuestionAnswering", "document-question-answering"},
    {"TapasForQuestionAnswering", "table-question-answering"},
    {"BlipForQuestionAnswering", "visual-question-answering"},
    {"ViltForQuestionAnswering", "visual-question-answering"},
    {"GroundingDinoForObjectDetection", "zero-shot-object-detection"},
    {"MMGroundingDinoForObjectDetection", "zero-shot-object-detection"},
    {"OmDetTurboForObjectDetection", "zero-shot-object-detection"},
    {"OwlViTForObjectDetection", "zero-shot-object-detection"},
    {"Owlv2ForObjectDetection", "zero-shot-object-detection"},
    {"Blip2ForImageTextRetrieval", "zero-shot-image-classification"},
    /* audio models: their sequences are sounds */
    {"Data2VecAudioForSequenceClassification", "audio-classification"},
    {"HubertForSequenceClassification", "audio-classification"},
    {"SEWDForSequenceClassification", "audio-classification"},
    {"SEWForSequenceClassification", "audio-classification"},
    {"UniSpeechForSequenceClassification", "audio-classification"},
    {"UniSpeechSatForSequenceClassification", "audio-classification"},
    {"Wav2Vec2BertForSequenceClassification", "audio-classification"},
    {"Wav2Vec2ConformerForSequenceClassification", "audio-classification"},
    {"Wav2Vec2ForSequenceClassification", "audio-classification"},
    {"WavLMForSequenceClassification", "audio-classification"},
    /* models that take no pictures */
    {"AudioFlamingo3ForConditionalGeneration", "text2text-generation"},
    {"BartForConditionalGeneration", "text2text-generation"},
    {"BigBirdPegasusForConditionalGeneration", "text2text-generation"},
    {"BlenderbotForConditionalGeneration", "text2text-generation"},
    {"BlenderbotSmallForConditionalGeneration", "text2text-generation"},
    {"FSMTForConditionalGeneration", "text2text-generation"},
    {"GlmAsrForConditionalGeneration", "text2text-generation"},
    {"GraniteSpeechForConditionalGeneration", "text2text-generation"},
    {"GraniteSpeechPlusForConditionalGeneration", "text2text-generation"},
    {"LEDForConditionalGeneration", "text2text-generation"},
    {"LongT5ForConditionalGeneration", "text2text-generation"},
    {"M2M100ForConditionalGeneration", "text2text-generation"},
    {"MBartForConditionalGeneration", "text2text-generation"},
    {"MT5ForConditionalGeneration", "text2text-generation"},
    {"MossTranscribeDiarizeForConditionalGeneration", "text2text-generation"},
    {"MusicFlamingoForConditionalGeneration", "text2text-generation"},
    {"MvpForConditionalGeneration", "text2text-generation"},
    {"Nemotron3_5TranscribeForConditionalGeneration", "text2text-generation"},
    {"NllbMoeForConditionalGeneration", "text2text-generation"},
    {"PLBartForConditionalGeneration", "text2text-generation"},
    {"PegasusForConditionalGeneration", "text2text-generation"},
    {"PegasusXForConditionalGeneration", "text2text-generation"},
    {"ProphetNetForConditionalGeneration", "text2text-generation"},
    {"Qwen2AudioForConditionalGeneration", "text2text-generation"},
    {"Qwen3ASRForConditionalGeneration", "text2text-generation"},
    {"SwitchTransformersForConditionalGeneration", "text2text-generation"},
    {"T5ForConditionalGeneration", "text2text-generation"},
    {"T5GemmaForConditionalGeneration", "text2text-generation"},
    {"UMT5ForConditionalGeneration", "text2text-generation"},
    {"VibeVoiceAsrForConditionalGeneration", "text2text-generation"},
    {"VoxtralForConditionalGeneration", "text2text-generation"},
    {"VoxtralRealtimeForConditionalGeneration", "text2text-generation"},
    {"CanaryForConditionalGeneration", "automatic-speech-recognition"},
    {"CohereAsrForConditionalGeneration", "automatic-speech-recognition"},
    {"DiaForConditionalGeneration", "automatic-speech-recognition"},
    {"FunAsrNanoForConditionalGeneration", "automatic-speech-recognition"},
    {"KyutaiSpeechToTextForConditionalGeneration", "automatic-speech-recognition"},
    {"MoonshineForConditionalGeneration", "automatic-speech-recognition"},
    {"MoonshineStreamingForConditionalGeneration", "automatic-speech-recognition"},
    {"Pop2PianoForConditionalGeneration", "automatic-speech-recognition"},
    {"Speech2TextForConditionalGeneration", "automatic-speech-recognition"},
    {"VibeVoiceForConditionalGeneration", "automatic-speech-recognition"},
    {"WhisperForConditionalGeneration", "automatic-speech-recognition"},
    {"CsmForConditionalGeneration", "text-to-audio"},
    {"GradiumPhononTTSForConditionalGeneration", "text-to-audio"},
    {"HiggsAudioV2ForConditionalGeneration", "text-to-audio"},
    {"MusicgenForConditionalGeneration", "text-to-audio"},
    {"MusicgenMelodyForConditionalGeneration", "text-to-audio"},
    {"PocketTTSForConditionalGeneration", "text-to-audio"},
    {"Qwen2_5OmniForConditionalGeneration", "any-to-any"},
    {"Qwen3OmniMoeForConditionalGeneration", "any-to-any"},
    {"ClvpModelForConditionalGeneration", "feature-extraction"},
};

/* Endings of all other names. */
static const struct rule ends[] = {
    {"ForCausalLM", "text-generation"},
    {"LMHeadModel", "text-generation"},
    {"ForConditionalGeneration", "image-text-to-text"},
    {"ForVisionText2Text", "image-text-to-text"},
    {"ForMaskedLM", "fill-mask"},
    {"ForSequenceClassification", "text-classification"},
    {"ForTokenClassification", "token-classification"},
    {"ForQuestionAnswering", "question-answering"},
    {"ForQuestionAnsweringSimple", "question-answering"},
    {"ForMultipleChoice", "multiple-choice"},
    {"ForTextToText", "text2text-generation"},
    {"ForImageClassification", "image-classification"},
    {"ForImageClassificationWithTeacher", "image-classification"},
    {"ForVideoClassification", "video-classification"},
    {"ForAudioClassification", "audio-classification"},
    {"ForObjectDetection", "object-detection"},
    {"ForSemanticSegmentation", "image-segmentation"},
    {"ForSegmentation", "image-segmentation"},
    {"ForDepthEstimation", "depth-estimation"},
    {"ForKeypointMatching", "keypoint-matching"},
    {"ForCTC", "automatic-speech-recognition"},
    {"ForSpeechToText", "automatic-speech-recognition"},
    {"ForTextToSpeech", "text-to-audio"},
    {"Model", "feature-extraction"},
    {"Encoder", "feature-extraction"},
};

const char *td_pipeline_tag_of(const char *architecture)
{
    size_t len = strlen(architecture);
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strcmp(architecture, classes[i].name) == 0)
            return classes[i].tag;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end_len = strlen(ends[i].name);
        if (len > end_len && strcmp(architecture + len - end_len, ends[i].name) == 0)
            return ends[i].tag;
    }
    return NULL;
}

"""From a plan that an engine built otherwise than predicted to a draft of the missing rule."""
